#include "rounds/agent_protocol.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

namespace dtrun::rendezvous {
namespace {

using namespace rounds;

// A number and what it may be.
template <typename Integer>
struct Bounded {
  Integer& value;
  std::int64_t least;
  std::int64_t most;
};
template <typename Integer>
Bounded<Integer> bounded(Integer& value, std::int64_t least, std::int64_t most) {
  return {value, least, most};
}
constexpr std::int64_t kMostRanks = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostRound = std::numeric_limits<std::int32_t>::max();
// The largest round that an agent may report: the rounds after it need numbers, too.
constexpr std::int64_t kMostLastRound = kMostRound / 2;
template <typename Integer>
auto round_number(Integer& value) {
  return bounded(value, kNoRound, kMostRound);
}
template <typename Integer>
auto node_number(Integer& value) {
  return bounded(value, kNoNodeRank, kMostNodes);
}
template <typename Integer>
auto port_number(Integer& value) {
  return bounded(value, 0, 65535);
}
// Processes end with these codes: 256 would become 0, the success of a job that has failed.
template <typename Integer>
auto exit_code(Integer& value) {
  return bounded(value, 0, 255);
}
template <typename Integer>
auto signal_number(Integer& value) {
  return bounded(value, 0, 64);
}

// The fields of every message, once, for writer and reader alike.
template <typename Archive>
void fields(Archive& archive, JobFailure& m) {
  archive(bounded(m.rank, -1, kMostRanks), node_number(m.node_rank), exit_code(m.code),
          signal_number(m.signal), m.pid, m.host, m.text, bounded(m.dumped, 0, 1),
          bounded(m.out_of_memory, 0, 1), m.tail);
}
template <typename Archive>
void fields(Archive& archive, Hello& m) {
  archive(m.run_id, m.host, m.role, node_number(m.node_rank),
          bounded(m.local_ranks, 1, kMostLocalRanks), bounded(m.min_nodes, 1, kMostNodes),
          bounded(m.max_nodes, 1, kMostNodes), m.agent, bounded(m.connection, 0, kMostRanks),
          bounded(m.last_round, kNoRound, kMostLastRound), node_number(m.last_group_rank),
          bounded(m.last_group_size, 0, kMostNodes),
          bounded(m.done_round, kNoRound, kMostLastRound), bounded(m.restarts, 0, kMostRanks));
}
template <typename Archive>
void fields(Archive&, Beat&) {}
template <typename Archive>
void fields(Archive& archive, StoreReady& m) {
  archive(round_number(m.round), m.address, port_number(m.port));
}
template <typename Archive>
void fields(Archive& archive, Stopped& m) {
  archive(round_number(m.round));
}
template <typename Archive>
void fields(Archive& archive, Failed& m) {
  archive(round_number(m.round));
  fields(archive, m.failure);
}
template <typename Archive>
void fields(Archive& archive, Done& m) {
  archive(round_number(m.round));
}
template <typename Archive>
void fields(Archive& archive, Leaving& m) {
  fields(archive, m.why);
}
template <typename Archive>
void fields(Archive& archive, WorkerEnd& m) {
  archive(round_number(m.round), bounded(m.rank, 0, kMostRanks),
          bounded(m.local_rank, 0, kMostRanks), exit_code(m.code), signal_number(m.signal), m.pid,
          bounded(m.stopped, 0, 1), bounded(m.dumped, 0, 1), bounded(m.out_of_memory, 0, 1), m.time,
          m.host, m.error_file, m.text, m.tail, bounded(m.more, 0, kMostRanks), m.stack, m.core,
          m.operations);
}
template <typename Archive>
void fields(Archive& archive, Accepted& m) {
  archive(m.keep_alive_interval, m.silence_window);
}
template <typename Archive>
void fields(Archive& archive, Refused& m) {
  archive(m.text);
}
template <typename Archive>
void fields(Archive& archive, Standing& m) {
  archive(m.kind, bounded(m.nodes, 0, kMostNodes));
}
template <typename Archive>
void fields(Archive& archive, Prepare& m) {
  archive(round_number(m.round));
}
template <typename Archive>
void fields(Archive& archive, Start& m) {
  archive(round_number(m.round), bounded(m.group_rank, 0, kMostNodes),
          bounded(m.group_world_size, 1, kMostNodes), bounded(m.base_rank, 0, kMostRanks),
          bounded(m.world_size, 1, kMostRanks), bounded(m.role_base_rank, 0, kMostRanks),
          bounded(m.role_world_size, 1, kMostRanks), bounded(m.restart_count, 0, kMostRanks),
          m.master_address, port_number(m.master_port));
}
template <typename Archive>
void fields(Archive& archive, Stop& m) {
  archive(round_number(m.round));
  fields(archive, m.cause);
}
template <typename Archive>
void fields(Archive& archive, Close& m) {
  archive(m.outcome);
  fields(archive, m.failure);
}

template <typename Archive>
void fields(Archive&, Echo&) {}
template <typename Archive>
void fields(Archive& archive, Evicted& m) {
  archive(m.text);
}

// The last of each enum.
constexpr std::int32_t last_of(Standing::Kind) {
  return static_cast<std::int32_t>(Standing::Kind::kLastCall);
}
constexpr std::int32_t last_of(Close::Outcome) {
  return static_cast<std::int32_t>(Close::Outcome::kFailed);
}

class Writer {
 public:
  explicit Writer(std::string& bytes) : bytes_(bytes) {}
  template <typename... Fields>
  void operator()(const Fields&... values) {
    (put(values), ...);
  }

 private:
  template <typename Integer>
  void put_bytes(Integer value) {
    char bytes[sizeof value];
    for (std::size_t i = 0; i < sizeof value; ++i) bytes[i] = static_cast<char>(value >> 8 * i);
    bytes_.append(bytes, sizeof value);
  }
  void put(std::int32_t value) { put_bytes(static_cast<std::uint32_t>(value)); }
  void put(std::uint64_t value) { put_bytes(value); }
  template <typename Integer>
  void put(const Bounded<Integer>& field) {
    put(field.value);
  }
  void put(Moment value) {
    put_bytes(static_cast<std::uint64_t>(std::max(value, Moment(1)).count()));
  }
  void put(const std::string& value) {
    // Longer texts are cut: a host's name or an error's text must not make a message that the
    // reader refuses.
    const std::string_view part = std::string_view(value).substr(0, kMostStringBytes);
    put_bytes(static_cast<std::uint32_t>(part.size()));
    bytes_ += part;
  }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void put(Enum value) { bytes_ += static_cast<char>(value); }

  std::string& bytes_;
};

// Once it has failed it reads zeros.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <typename... Fields>
  void operator()(Fields&&... values) {
    (get(values), ...);
  }
  void expect_end() {
    if (!bytes_.empty()) fail("it is too long for its kind");
  }
  void fail(std::string why) {
    if (failure_.empty()) failure_ = std::move(why);
  }
  const std::string& failure() const { return failure_; }

 private:
  std::string_view take(std::size_t count) {
    if (count > bytes_.size()) fail("it ends too early");
    if (!failure_.empty()) return {};
    const std::string_view part = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return part;
  }
  template <typename Integer>
  Integer get_bytes() {
    Integer value = 0;
    int shift = 0;
    for (const char byte : take(sizeof value)) {
      value |= static_cast<Integer>(static_cast<unsigned char>(byte)) << shift;
      shift += 8;
    }
    return value;
  }
  void check(std::int64_t value, std::int64_t least, std::int64_t most) {
    if (failure_.empty() && (value < least || value > most))
      fail(fmt::format("it has the number {} where {} to {} are allowed", value, least, most));
  }
  void get(std::int32_t& value) { value = static_cast<std::int32_t>(get_bytes<std::uint32_t>()); }
  void get(std::uint64_t& value) { value = get_bytes<std::uint64_t>(); }
  template <typename Integer>
  void get(const Bounded<Integer>& field) {
    get(field.value);
    check(field.value, field.least, field.most);
  }
  void get(Moment& value) {
    const auto count = static_cast<std::int64_t>(get_bytes<std::uint64_t>());
    check(count, 1, Moment::max().count());
    value = Moment(count);
  }
  void get(std::string& value) {
    const auto size = get_bytes<std::uint32_t>();
    check(size, 0, kMostStringBytes);
    value = take(size);
  }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void get(Enum& value) {
    const auto number = get_bytes<std::uint8_t>();
    check(number, 0, last_of(Enum{}));
    if (failure_.empty()) value = static_cast<Enum>(number);
  }

  std::string_view bytes_;
  std::string failure_;
};

template <typename Message>
void encode_message(const Message& message, std::string& bytes) {
  const std::size_t start = bytes.size();
  bytes.append(4, '\0');
  bytes += static_cast<char>(message.index());
  Writer writer(bytes);
  // fields() serves the reader, too, which changes what it is given; the writer does not.
  std::visit(
      [&](const auto& m) { fields(writer, const_cast<std::remove_cvref_t<decltype(m)>&>(m)); },
      message);
  const auto size = static_cast<std::uint32_t>(bytes.size() - start - 4);
  for (std::size_t i = 0; i < 4; ++i) bytes[start + i] = static_cast<char>(size >> 8 * i);
}

template <typename Message, std::size_t... kKinds>
Message read_kind(std::size_t kind, Reader& reader, std::index_sequence<kKinds...>) {
  Message message;
  const auto read_as = [&]<std::size_t kKind>() {
    fields(reader, message.template emplace<kKind>());
    return true;
  };
  if (!((kind == kKinds && read_as.template operator()<kKinds>()) || ...))
    reader.fail(fmt::format("its kind, {}, is not known", kind));
  return message;
}

template <typename Message>
std::optional<Message> take_any(std::string_view& bytes, std::string& failure) {
  if (bytes.size() < 4) return std::nullopt;
  std::uint32_t size = 0;
  for (std::size_t i = 0; i < 4; ++i)
    size |= std::uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  if (size == 0 || size > kMostFrameBytes) {
    failure = fmt::format("a message of {} bytes, and 1 to {} are allowed", size, kMostFrameBytes);
    return std::nullopt;
  }
  // Not all of it has come yet. Only a size that is too large ends the connection, before its bytes
  // are waited for.
  if (bytes.size() - 4 < size) return std::nullopt;
  const auto kind = static_cast<unsigned char>(bytes[4]);
  Reader reader(bytes.substr(5, size - 1));
  Message message =
      read_kind<Message>(kind, reader, std::make_index_sequence<std::variant_size_v<Message>>());
  reader.expect_end();
  if (!reader.failure().empty()) {
    failure = "a malformed message: " + reader.failure();
    return std::nullopt;
  }
  bytes.remove_prefix(4 + size);
  return message;
}

}  // namespace

void encode(const AgentMessage& message, std::string& bytes) {
  encode_message(message, bytes);
}

void encode(const HeadMessage& message, std::string& bytes) {
  encode_message(message, bytes);
}

template <>
std::optional<AgentMessage> take_message(std::string_view& bytes, std::string& failure) {
  return take_any<AgentMessage>(bytes, failure);
}

template <>
std::optional<HeadMessage> take_message(std::string_view& bytes, std::string& failure) {
  return take_any<HeadMessage>(bytes, failure);
}

}  // namespace dtrun::rendezvous
