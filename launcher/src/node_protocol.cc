#include "node_protocol.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"
#include "dtrun/base/exit_status.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

// The fields of every message, once, for writer and reader alike.
template <typename Archive>
void fields(Archive& archive, Hello& m) {
  archive(m.node_rank, m.node_count, m.local_ranks, m.run_id, m.host);
}
template <typename Archive>
void fields(Archive& archive, Welcome& m) {
  archive(m.base_rank, m.world_size, m.store_port, m.node_rank);
}
template <typename Archive>
void fields(Archive& archive, Refuse& m) {
  archive(m.text);
}
template <typename Archive>
void fields(Archive& archive, JobFailure& m) {
  archive(m.rank, m.node_rank, m.code, m.signal, m.pid, m.host, m.text);
}
template <typename Archive>
void fields(Archive&, Done&) {}
template <typename Archive>
void fields(Archive&, Release&) {}
template <typename Archive>
void fields(Archive&, Joined&) {}

struct Writer {
  std::string bytes;
  void put(std::uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift & 0xff);
  }
  void put(std::int32_t value) { put(static_cast<std::uint32_t>(value)); }
  void put(const std::string& value) {
    const std::string part = value.substr(0, 8 << 10);
    put(static_cast<std::uint32_t>(part.size()));
    bytes += part;
  }
  template <typename... Fields>
  void operator()(const Fields&... values) {
    (put(values), ...);
  }
};

struct Reader {
  std::string_view bytes;
  std::string_view take(std::size_t count) {
    if (count > bytes.size())
      throw Error(ErrorCode::kProtocol, "another node's dtrun sent a message that ends too early");
    const std::string_view part = bytes.substr(0, count);
    bytes.remove_prefix(count);
    return part;
  }
  void get(std::uint32_t& value) {
    value = 0;
    int shift = 0;
    for (const char byte : take(4)) {
      value |= std::uint32_t{static_cast<unsigned char>(byte)} << shift;
      shift += 8;
    }
  }
  void get(std::int32_t& value) {
    std::uint32_t raw = 0;
    get(raw);
    value = static_cast<std::int32_t>(raw);
  }
  void get(std::string& value) {
    std::uint32_t size = 0;
    get(size);
    value = std::string(take(size));
  }
  template <typename... Fields>
  void operator()(Fields&... values) {
    (get(values), ...);
  }
};

template <std::size_t... kKinds>
NodeMessage read_kind(std::size_t kind, Reader& reader, std::index_sequence<kKinds...>) {
  NodeMessage message;
  const auto read_as = [&]<std::size_t kKind>() {
    fields(reader, message.emplace<kKind>());
    return true;
  };
  if (!((kind == kKinds && read_as.template operator()<kKinds>()) || ...))
    throw Error(ErrorCode::kProtocol,
                fmt::format("another node's dtrun sent a message of unknown kind {}", kind));
  return message;
}

}  // namespace

std::string Hello::describe() const {
  return node_rank < 0 ? host : fmt::format("node {} ({})", node_rank, host);
}

std::string JobFailure::describe() const {
  if (!text.empty()) return text;
  return fmt::format("rank {} on node {} ({}) failed: {}", rank, node_rank, host,
                     base::ExitStatus{code, signal}.describe());
}

int JobFailure::exit_code() const {
  const int own = base::ExitStatus{code, signal}.shell_code();
  return own != 0 ? own : 1;
}

std::string encode(const NodeMessage& message) {
  Writer body;
  body.bytes += static_cast<char>(message.index());
  std::visit([&](auto copy) { fields(body, copy); }, message);
  Writer frame;
  frame.put(static_cast<std::uint32_t>(body.bytes.size()));
  return frame.bytes + body.bytes;
}

std::optional<NodeMessage> take_message(std::string& bytes) {
  if (bytes.size() < 4) return std::nullopt;
  Reader reader{bytes};
  std::uint32_t size = 0;
  reader.get(size);
  if (size == 0 || size > kMostFrameBytes)
    throw Error(ErrorCode::kProtocol,
                fmt::format("another node's dtrun sent a message of {} bytes", size),
                fmt::format("1 to {} are allowed", kMostFrameBytes),
                "check that nothing but dtrun connects to this port");
  if (reader.bytes.size() < size) return std::nullopt;
  Reader body{reader.take(size)};
  const std::size_t kind = static_cast<unsigned char>(body.take(1)[0]);
  NodeMessage message =
      read_kind(kind, body, std::make_index_sequence<std::variant_size_v<NodeMessage>>());
  bytes.erase(0, 4 + size);
  return message;
}

}  // namespace dtrun::launcher
