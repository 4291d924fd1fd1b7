// VerdictRecord: how a head's verdict stands in etcd: words for people, and on a last line of its
// own the message Close itself, in base64, from which every agent of the run has it, should the
// head die before it has told them.
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
