// What the agents of a job's nodes say to each other, and how it lies on the wire. Frozen: the
// first byte of a connection (kPreamble, >= 0x80, which tells agents from store clients on the
// shared port), then the version, then frames. Version 2.
//
//   member -> head  preamble byte, u8 version
//   frame           u32 length of what follows, u8 kind, fields; integers little-endian,
//                   a string is u32 length and bytes
//   Hello           member: node rank (-1: to be given out), node count, local ranks, run id, host
//   Joined          head: the Hello is right, and others are waited for
//   Welcome         head: base rank, world size, store port, node rank; sent when all nodes are in
//   Refuse          head: text; the connection ends
//   Failure         either way: the job has failed, and by whom; the receiver stops its ranks
//   Done            member: its ranks have ended
//   Release         head: all nodes are done, nobody needs the store any more
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace dtrun::launcher {

inline constexpr unsigned char kPreamble = 0xD7;
inline constexpr std::uint8_t kProtocolVersion = 2;
inline constexpr std::uint32_t kMostFrameBytes = 64 << 10;
inline constexpr int kMostLocalRanks = 65536;

struct Hello {
  std::int32_t node_rank = 0;
  std::int32_t node_count = 0;
  std::int32_t local_ranks = 0;
  std::string run_id;
  std::string host;

  /// "node 1 (h1)"; "h1" while it has no number.
  std::string describe() const;
};

struct Welcome {
  std::int32_t base_rank = 0;
  std::int32_t world_size = 0;
  std::int32_t store_port = 0;
  std::int32_t node_rank = 0;
};

struct Refuse {
  std::string text;
};

/// Why the job ends on all nodes.
struct JobFailure {
  std::int32_t rank = -1;  ///< -1: no rank but a node, see text
  std::int32_t node_rank = 0;
  std::int32_t code = 0;
  std::int32_t signal = 0;
  std::int32_t pid = 0;
  std::string host;
  std::string text;  ///< where code and signal do not say it: "node 1 (h1) is gone"

  /// "rank 3 on node 1 (h1) failed: SIGKILL"
  std::string describe() const;
  int exit_code() const;
};

struct Done {};
struct Release {};
struct Joined {};

using NodeMessage = std::variant<Hello, Welcome, Refuse, JobFailure, Done, Release, Joined>;

std::string encode(const NodeMessage& message);

/// Takes the first whole frame off the front of `bytes`; nullopt while it is incomplete.
/// @throws Error kProtocol
std::optional<NodeMessage> take_message(std::string& bytes);

}  // namespace dtrun::launcher
