// The wire format of c10d's TCP store: the one place that knows its numbers. Server
// (request_parser, store_session) and client (store_connection, tcp_store) both use it;
// docs/protocols.md describes it.
//
// Integers are little-endian and unaligned; a text is a u64 length and its bytes. There is no
// framing, no request id and no error reply: whoever cannot go on closes the connection. SET,
// APPEND, MULTI_SET and QUEUE_PUSH have no reply.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dtrun::rendezvous {

static_assert(std::endian::native == std::endian::little, "the protocol is the host's byte order");

/// The values are the op codes of PyTorch >= 2.2; kWatchKey exists in the legacy dialect only.
enum class StoreOp : std::uint8_t {
  kValidate = 0,
  kSet = 1,
  kCompareSet = 2,
  kGet = 3,
  kAdd = 4,
  kCheck = 5,
  kWait = 6,
  kNumKeys = 7,
  kDeleteKey = 8,
  kAppend = 9,
  kMultiGet = 10,
  kMultiSet = 11,
  kCancelWait = 12,
  kPing = 13,
  kQueuePush = 14,
  kQueuePop = 15,
  kQueueLength = 16,
  kListKeys = 17,
  kBarrier = 18,
  kWatchKey = 255,
};

/// How a connection numbers its operations.
enum class StoreDialect { kModern, kTorch19To20, kTorch21 };

inline constexpr StoreOp kModernOps[] = {
    StoreOp::kValidate,    StoreOp::kSet,      StoreOp::kCompareSet, StoreOp::kGet,
    StoreOp::kAdd,         StoreOp::kCheck,    StoreOp::kWait,       StoreOp::kNumKeys,
    StoreOp::kDeleteKey,   StoreOp::kAppend,   StoreOp::kMultiGet,   StoreOp::kMultiSet,
    StoreOp::kCancelWait,  StoreOp::kPing,     StoreOp::kQueuePush,  StoreOp::kQueuePop,
    StoreOp::kQueueLength, StoreOp::kListKeys, StoreOp::kBarrier};
inline constexpr StoreOp kTorch19To20Ops[] = {
    StoreOp::kSet,  StoreOp::kCompareSet, StoreOp::kGet,      StoreOp::kAdd,      StoreOp::kCheck,
    StoreOp::kWait, StoreOp::kNumKeys,    StoreOp::kWatchKey, StoreOp::kDeleteKey};
inline constexpr StoreOp kTorch21Ops[] = {
    StoreOp::kSet,    StoreOp::kCompareSet, StoreOp::kGet,      StoreOp::kAdd,
    StoreOp::kCheck,  StoreOp::kWait,       StoreOp::kNumKeys,  StoreOp::kDeleteKey,
    StoreOp::kAppend, StoreOp::kMultiGet,   StoreOp::kMultiSet, StoreOp::kCancelWait};

inline std::optional<StoreOp> store_op(StoreDialect dialect, unsigned char code) {
  std::span<const StoreOp> ops = kModernOps;
  if (dialect == StoreDialect::kTorch19To20) ops = kTorch19To20Ops;
  if (dialect == StoreDialect::kTorch21) ops = kTorch21Ops;
  if (code >= ops.size()) return std::nullopt;
  return ops[code];
}

/// What follows the op code: k key, v value, i 64-bit number, u 32-bit number, * a 64-bit count of
/// the fields after it.
constexpr const char* store_op_fields(StoreOp op) {
  switch (op) {
    case StoreOp::kValidate:
    case StoreOp::kPing:
      return "u";
    case StoreOp::kSet:
    case StoreOp::kAppend:
    case StoreOp::kQueuePush:
      return "kv";
    case StoreOp::kCompareSet:
      return "kvv";
    case StoreOp::kGet:
    case StoreOp::kDeleteKey:
    case StoreOp::kQueuePop:
    case StoreOp::kQueueLength:
    case StoreOp::kWatchKey:
      return "k";
    case StoreOp::kAdd:
    case StoreOp::kBarrier:
      return "ki";
    case StoreOp::kCheck:
    case StoreOp::kWait:
    case StoreOp::kMultiGet:
      return "*k";
    case StoreOp::kMultiSet:
      return "*kv";
    case StoreOp::kNumKeys:
    case StoreOp::kCancelWait:
    case StoreOp::kListKeys:
      return "";
  }
  return "";
}

/// The others read, or take away.
constexpr bool adds_to_the_store(StoreOp op) {
  switch (op) {
    case StoreOp::kSet:
    case StoreOp::kCompareSet:
    case StoreOp::kAdd:
    case StoreOp::kWait:
    case StoreOp::kAppend:
    case StoreOp::kMultiSet:
    case StoreOp::kQueuePush:
    case StoreOp::kBarrier:
      return true;
    default:
      return false;
  }
}

constexpr const char* store_op_name(StoreOp op) {
  constexpr const char* kNames[] = {
      "VALIDATE",   "SET",        "COMPARE_SET", "GET",       "ADD",       "CHECK",       "WAIT",
      "NUM_KEYS",   "DELETE_KEY", "APPEND",      "MULTI_GET", "MULTI_SET", "CANCEL_WAIT", "PING",
      "QUEUE_PUSH", "QUEUE_POP",  "QUEUE_LEN",   "LIST_KEYS", "BARRIER"};
  return op == StoreOp::kWatchKey ? "WATCH_KEY" : kNames[static_cast<std::size_t>(op)];
}

/// A modern client's first five bytes: VALIDATE and the magic 0x3C85F7CE.
inline constexpr std::string_view kStorePreamble("\x00\xce\xf7\x85\x3c", 5);
inline constexpr std::uint32_t kStoreMagic = 0x3C85F7CE;
/// A first byte from here on is an agent's, not a store client's.
inline constexpr unsigned char kFirstAgentByte = 0x80;

// Replies of CHECK, WAIT, BARRIER and CANCEL_WAIT.
inline constexpr unsigned char kReady = 0;
inline constexpr unsigned char kNotReady = 1;
inline constexpr unsigned char kStopWaiting = 0;
inline constexpr unsigned char kWaitCanceled = 1;

/// PyTorch's server closes the connection on more than these; so does ours unless told otherwise.
inline constexpr std::size_t kMaxKeyBytes = 8 << 10;
inline constexpr std::size_t kMaxValueBytes = 8 << 20;
/// A client sends at most so many keys in one request: PyTorch's server takes 131072, and no
/// longest keys may exceed kMaxRequestBytes.
inline constexpr std::size_t kMaxKeysSent = 1 << 14;
/// The limit of a whole request, so that many allowed parts cannot fill the memory.
inline constexpr std::size_t kMaxRequestBytes = 256 << 20;
/// The limit of a reply's text, which is larger because values grow by APPEND.
inline constexpr std::size_t kMaxReplyBytes = 1 << 30;

template <typename Number>
void append_number(std::string& out, Number number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, sizeof number);
}

inline void append_text(std::string& out, std::string_view text) {
  append_number<std::uint64_t>(out, text.size());
  out.append(text);
}

}  // namespace dtrun::rendezvous
