#include "store/store_errors.h"

#include <fmt/core.h>

#include <cctype>
#include <utility>

namespace dtrun::rendezvous {
namespace {

using base::Error;
using base::ErrorCode;

constexpr std::size_t kMostKeysShown = 32;
constexpr std::size_t kMostBytesShown = 64;

std::string joined(const std::vector<std::string>& keys) {
  std::string text;
  for (std::size_t i = 0; i < keys.size() && i < kMostKeysShown; ++i)
    text += (i == 0 ? "" : ", ") + keys[i];
  if (keys.size() > kMostKeysShown)
    text += fmt::format(" and {} more", keys.size() - kMostKeysShown);
  return text;
}

std::int64_t milliseconds(base::Deadline::Duration duration) {
  return std::chrono::round<std::chrono::milliseconds>(duration).count();
}

std::string in_store(const std::string& store) {
  return store.empty() ? "" : " in " + store;
}

}  // namespace

Error wait_timeout(base::Deadline::Duration budget, const std::vector<std::string>& keys,
                   const std::vector<std::string>& missing, const std::string& store) {
  return Error(ErrorCode::kTimeout,
               fmt::format("wait timeout after {}ms, keys: {}", milliseconds(budget), joined(keys)),
               fmt::format("nobody has set {}{}", missing.empty() ? "them all" : joined(missing),
                           in_store(store)),
               "look at the ranks that should have: they may have died, be late, or use another "
               "key; raise the timeout if they are only slow");
}

Error answer_timeout(std::string_view operation, base::Deadline::Duration took,
                     const std::vector<std::string>& keys, std::string why) {
  std::string name(operation);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return Error(ErrorCode::kTimeout,
               fmt::format("{} timeout after {}ms, keys: {}", name, milliseconds(took),
                           keys.empty() ? "none" : joined(keys)),
               std::move(why), "look at the process that holds the store");
}

Error not_a_number(const std::string& key, const std::string& value) {
  const std::string_view shown = std::string_view(value).substr(0, kMostBytesShown);
  return Error(
      ErrorCode::kProtocol, fmt::format("cannot add to the key {}", key),
      fmt::format("its value '{}' is no number, or the sum does not fit into 64 bits", shown),
      "use one key for counting and another for values");
}

Error barrier_timeout(base::Deadline::Duration budget, const std::string& key,
                      const std::string& arrived, std::int64_t world, const std::string& store) {
  return Error(ErrorCode::kTimeout,
               fmt::format("wait timeout after {}ms, keys: {}", milliseconds(budget), key),
               fmt::format("{} of {} have come to this barrier{}", arrived, world, in_store(store)),
               "look at the ranks that have not: they may have died or be late");
}

Error not_a_value(const std::vector<std::string>& keys) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("cannot read the keys {}", joined(keys)),
               "one of them is the name of a queue", "use queue_pop for queues");
}

Error not_a_queue(const std::string& key) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("cannot pop from the queue {}", key),
               "a plain key has the same name, so that a wait for an element never waits",
               "give the queue a name of its own");
}

}  // namespace dtrun::rendezvous
