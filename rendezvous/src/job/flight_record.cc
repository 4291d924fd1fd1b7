#include "dtrun/rendezvous/flight_record.h"

#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <string_view>

#include "dtrun/base/error.h"
#include "dtrun/base/utf8.h"

namespace dtrun::rendezvous {
namespace {

using base::Error;
using base::ErrorCode;
namespace json = boost::json;

constexpr std::string_view kFormat = "dtrun flight record 1";
// By FlightState; and below by RankState (job_page.h).
constexpr std::array<std::string_view, 3> kStateNames = {"running", "done", "failed"};
constexpr std::array<std::string_view, 7> kRankStates = {
    "none", "spawned", "init", "running", "in_collective", "left", "exited"};
/// What is added to a time of CLOCK_MONOTONIC to get one since the epoch. One difference serves a
/// whole record, so a step of the wall clock moves all its times alike.
double epoch_of_monotonic() {
  timespec monotonic{};
  ::clock_gettime(CLOCK_MONOTONIC, &monotonic);
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return now.count() - static_cast<double>(monotonic.tv_sec) -
         static_cast<double>(monotonic.tv_nsec) * 1e-9;
}

FlightMembers members_of(const HistoryEntry& entry) {
  // Stride 0 with several ranks: they are in no such order.
  const bool is_known = entry.rank_stride != 0 || entry.group_size == 1;
  if (!is_known || entry.group_size < 1) return {};
  return {entry.first_rank, entry.rank_stride, entry.group_size, {}};
}

json::value value_of(const FlightMembers& members) {
  if (members.count == 0) return nullptr;
  return json::object{
      {"first", members.first}, {"stride", members.stride}, {"count", members.count}};
}

FlightOperation operation_of(const HistoryEntry& entry, double epoch) {
  const Operation& own = entry.operation;
  FlightOperation result;
  result.name = own.name;
  result.group = own.group;
  result.sequence = own.sequence;
  result.state = own.ended_ns == 0 ? FlightState::running
                 : own.failed != 0 ? FlightState::failed
                                   : FlightState::done;
  result.call_site = entry.call_site;
  result.dtype = entry.elements > 0 ? entry.dtype : "";
  result.reduce_op = entry.reduce_op;
  result.elements = entry.elements;
  result.bytes = own.bytes;
  result.root = entry.root;
  result.waiting_for = own.waiting_for;
  result.members = members_of(entry);
  result.members_hash = entry.members_hash;
  result.started = epoch + static_cast<double>(own.started_ns) * 1e-9;
  if (own.ended_ns != 0) result.ended = epoch + static_cast<double>(own.ended_ns) * 1e-9;
  return result;
}

json::value number_or_null(int number) {
  return number < 0 ? json::value() : json::value(number);
}

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value() : json::value(base::as_utf8(text));
}

// A rank has written these texts into shared memory, and may have written anything: JSON needs
// UTF-8.
json::object object_of(const FlightOperation& operation) {
  json::object result{{"name", base::as_utf8(operation.name)},
                      {"group", base::as_utf8(operation.group)},
                      {"sequence", operation.sequence},
                      {"state", flight_state_name(operation.state)},
                      {"call_site", text_or_null(operation.call_site)},
                      {"dtype", text_or_null(operation.dtype)},
                      {"reduce_op", text_or_null(operation.reduce_op)},
                      {"elements", operation.elements},
                      {"bytes", operation.bytes},
                      {"root", number_or_null(operation.root)},
                      {"waiting_for", number_or_null(operation.waiting_for)},
                      {"started", operation.started}};
  result["ended"] = operation.ended ? json::value(*operation.ended) : json::value();
  result["members"] = value_of(operation.members);
  result["members_hash"] = operation.members_hash;
  return result;
}

/// An object of the document, whose errors name it.
class FlightReader {
 public:
  FlightReader(const json::value& value, std::string where, const std::string& source)
      : where_(std::move(where)), source_(source) {
    if (!value.is_object()) throw malformed(where_ + " is no object");
    object_ = &value.get_object();
  }

  Error malformed(const std::string& why) const {
    return Error(ErrorCode::kProtocol, source_ + " is no flight record", why,
                 "dtrun writes such files with --flight-recorder=FOLDER, PyTorch by "
                 "torch.distributed's flight recorder");
  }

  std::string text(const char* key) const {
    const json::value* const value = find(key);
    if (value == nullptr) return "";
    if (!value->is_string()) throw malformed(fmt::format("{}.{} is no text", where_, key));
    return std::string(value->get_string().data(), value->get_string().size());
  }

  template <typename Number>
  Number number(const char* key, Number otherwise) const {
    const json::value* const value = find(key);
    if (value == nullptr) return otherwise;
    boost::system::error_code error;
    const auto result = value->to_number<Number>(error);
    if (error) throw malformed(fmt::format("{}.{} is no such number", where_, key));
    return result;
  }

  const json::array& list(const char* key) const {
    static const json::array kNothing;
    const json::value* const value = find(key);
    if (value == nullptr) return kNothing;
    if (!value->is_array()) throw malformed(fmt::format("{}.{} is no list", where_, key));
    return value->get_array();
  }

  std::string place(const char* key, std::size_t index) const {
    return fmt::format("{}.{}[{}]", where_, key, index);
  }
  const std::string& source() const { return source_; }
  /// nullptr: it is null, or not there.
  const json::value* find(const char* key) const {
    const json::value* const value = object_->if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

 private:
  std::string where_;
  const std::string& source_;
  const json::object* object_ = nullptr;
};

FlightMembers members_of(const FlightReader& reader) {
  FlightMembers members;
  if (const json::value* const value = reader.find("members"); value != nullptr) {
    const FlightReader range(*value, "members", reader.source());
    members.first = range.number("first", 0);
    members.stride = range.number("stride", 0);
    members.count = range.number("count", 0);
  }
  return members;
}

FlightOperation operation_of(const FlightReader& reader) {
  FlightOperation result;
  result.name = reader.text("name");
  result.group = reader.text("group");
  result.sequence = reader.number<std::uint64_t>("sequence", 0);
  const std::string state = reader.text("state");
  const auto* const found = std::find(kStateNames.begin(), kStateNames.end(), state);
  if (found == kStateNames.end()) throw reader.malformed(fmt::format("'{}' is no state", state));
  result.state = static_cast<FlightState>(found - kStateNames.begin());
  result.call_site = reader.text("call_site");
  result.dtype = reader.text("dtype");
  result.reduce_op = reader.text("reduce_op");
  result.elements = reader.number<std::uint64_t>("elements", 0);
  result.bytes = reader.number<std::uint64_t>("bytes", 0);
  result.root = reader.number("root", -1);
  result.waiting_for = reader.number("waiting_for", -1);
  result.started = reader.number("started", 0.0);
  if (const double ended = reader.number("ended", -1.0); ended >= 0) result.ended = ended;
  result.members = members_of(reader);
  result.members_hash = reader.number<std::uint32_t>("members_hash", 0);
  return result;
}

RankFlight rank_of(const FlightReader& reader) {
  RankFlight result;
  result.rank = reader.number("rank", -1);
  if (result.rank < 0) throw reader.malformed("a rank has no number");
  result.pid = reader.number("pid", 0);
  result.state = reader.text("state");
  result.victim_of = reader.number("victim_of", -1);
  result.begun = reader.number<std::uint64_t>("operations_begun", 0);
  const json::array& operations = reader.list("operations");
  for (std::size_t i = 0; i < operations.size(); ++i)
    result.operations.push_back(
        operation_of(FlightReader(operations[i], reader.place("operations", i), reader.source())));
  return result;
}

}  // namespace

std::vector<int> FlightMembers::all(int most) const {
  if (!listed.empty()) return listed;
  std::vector<int> ranks;
  if (count > most) return ranks;
  for (int i = 0; i < count; ++i)
    ranks.push_back(static_cast<int>(first + std::int64_t{i} * stride));
  return ranks;
}

std::string_view flight_state_name(FlightState state) {
  return kStateNames[static_cast<std::size_t>(state)];
}

FlightRecord read_flight(const JobPage& page) {
  FlightRecord record;
  const double epoch = epoch_of_monotonic();
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  record.written = now.count();
  record.cause = page.describe_cause();
  for (int i = 0; i < page.slot_count(); ++i) {
    const RankSlot& slot = page.slot(i);
    RankFlight flight;
    flight.rank = slot.global_rank.load();
    if (flight.rank < 0) continue;  // it was never started
    flight.pid = slot.pid.load();
    const std::uint32_t state = static_cast<std::uint32_t>(state_of(slot));
    // A rank can write any number there.
    flight.state = state < kRankStates.size() ? kRankStates[state] : "none";
    flight.victim_of = slot.victim_of.load();
    flight.begun = slot.operations.load();
    for (const HistoryEntry& entry : page.history(i))
      flight.operations.push_back(operation_of(entry, epoch));
    if (const std::optional<AwaitedOperation> awaited = awaited_in(slot))
      flight.awaited = {.rank = awaited->by,
                        .name = awaited->name,
                        .group = awaited->group,
                        .sequence = awaited->sequence,
                        .since = epoch + static_cast<double>(awaited->since_ns) * 1e-9};
    record.ranks.push_back(std::move(flight));
  }
  return record;
}

std::string to_json(const FlightRecord& record) {
  json::array ranks;
  for (const RankFlight& flight : record.ranks) {
    json::array operations;
    for (const FlightOperation& operation : flight.operations)
      operations.push_back(object_of(operation));
    ranks.push_back(json::object{{"rank", flight.rank},
                                 {"pid", flight.pid},
                                 {"state", flight.state},
                                 {"victim_of", number_or_null(flight.victim_of)},
                                 {"operations_begun", flight.begun},
                                 {"operations", std::move(operations)}});
  }
  return json::serialize(json::object{{"format", kFormat},
                                      {"job", base::as_utf8(record.job)},
                                      {"node", record.node},
                                      {"round", record.round},
                                      {"world_size", record.world_size},
                                      {"written", record.written},
                                      {"cause", text_or_null(record.cause)},
                                      {"ranks", std::move(ranks)}}) +
         "\n";
}

FlightRecord flight_record_of(const json::value& document, const std::string& source) {
  const FlightReader reader(document, "the document", source);
  if (const std::string format = reader.text("format"); format != kFormat)
    throw reader.malformed(fmt::format("its format is '{}', not '{}'", format, kFormat));
  FlightRecord record;
  record.job = reader.text("job");
  record.node = reader.number("node", 0);
  record.round = reader.number("round", 0);
  record.world_size = reader.number("world_size", 0);
  record.written = reader.number("written", 0.0);
  record.cause = reader.text("cause");
  const json::array& ranks = reader.list("ranks");
  for (std::size_t i = 0; i < ranks.size(); ++i)
    record.ranks.push_back(rank_of(FlightReader(ranks[i], reader.place("ranks", i), source)));
  return record;
}

}  // namespace dtrun::rendezvous
