// VerdictRecord: a head's verdict in etcd: words for people and, on the last line, the message
// Close in base64. If the head dies before it has told all agents, they take the verdict from
// there.
#pragma once

#include <optional>
#include <string>

#include "dtrun/rendezvous/round_messages.h"

namespace dtrun::rendezvous {

struct VerdictRecord {
  std::string words;
  std::optional<rounds::Close> verdict;  ///< nullopt: another program has written the record
};

std::string write_verdict(const rounds::Close& verdict);
VerdictRecord read_verdict(const std::string& record);

}  // namespace dtrun::rendezvous
