// HeadRecord: what a head publishes in a file, so that the other agents of the job find it
// (head_file.h). The format is text, one "key value" a line in this order, ended by "end", so that
// a file that is not whole is told from one that is. Pure but for
// make_head_record().
//
//   dtrun-head 1
//   run_id job%20a      every byte but letters, digits, '-', '_', '.', ':' as %XX
//   host 10.0.0.1
//   port 40123
//   agent node1:4711    host and pid, for messages
//   nonce 1f0c...       64 bits that no other record has
//   end
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::launcher {

struct HeadRecord {
  std::string run_id;
  std::string host;  ///< numeric, or a name that all nodes know
  std::uint16_t port = 0;
  std::string agent;
  std::string nonce;

  friend bool operator==(const HeadRecord&, const HeadRecord&) = default;
};

/// With a fresh nonce, and this process as the agent. @throws Error kSystem
HeadRecord make_head_record(const std::string& run_id, const std::string& host, std::uint16_t port);

/// The greatest length of a record; no more is read.
inline constexpr std::size_t kMostHeadRecordBytes = 8192;

std::string format_head_record(const HeadRecord& record);
/// nullopt: the text is no record, or not whole.
std::optional<HeadRecord> parse_head_record(std::string_view text);

}  // namespace dtrun::launcher
