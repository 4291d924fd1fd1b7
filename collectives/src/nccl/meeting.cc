#include "nccl/meeting.h"

#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "dtrun/base/error.h"
#include "nccl/nccl_types.h"

namespace dtrun::collectives::nccl {

using base::Error;
using base::ErrorCode;

namespace {

constexpr char kId = 'i';
constexpr char kRefusal = 'r';

}  // namespace

Meeting::Meeting(std::shared_ptr<NcclApi> api, MeetingPlace place)
    : api_(std::move(api)), place_(std::move(place)) {}

std::string Meeting::member_key(std::size_t rank) const {
  return fmt::format("{}/member/{}", place_.key, rank);
}

bool Meeting::ask() {
  {
    const std::scoped_lock lock(mutex_);
    if (cancelled_) return true;
  }
  std::optional<Ids> ids;
  std::exception_ptr failure;
  try {
    ids = look();
  } catch (const Error&) {
    failure = std::current_exception();
  }
  const std::scoped_lock lock(mutex_);
  ids_ = std::move(ids);
  failure_ = failure;
  return ids_ || failure_;
}

std::optional<Meeting::Ids> Meeting::outcome() const {
  const std::scoped_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  return ids_;
}

void Meeting::cancel() {
  const std::scoped_lock lock(mutex_);
  cancelled_ = true;
}

std::optional<Meeting::Ids> Meeting::look() {
  if (!announced_) {
    place_.store->set(member_key(static_cast<std::size_t>(place_.rank)),
                      place_.gpu + "\n" + place_.gpu_name);
    announced_ = true;
  }
  const std::string key = place_.key + "/id";
  if (place_.rank == 0) {
    if (!missing().empty()) return std::nullopt;
    const std::string answer = decide();
    place_.store->set(key, answer);
    return read(answer);
  }
  const std::optional<std::string> answer = place_.store->try_get(key);
  if (!answer) return std::nullopt;
  return read(*answer);
}

std::vector<int> Meeting::missing() const {
  std::vector<std::string> keys;
  for (std::size_t rank = 0; rank < place_.global_ranks.size(); ++rank)
    keys.push_back(member_key(rank));
  if (place_.store->check(keys)) return {};
  std::vector<int> result;
  for (std::size_t rank = 0; rank < keys.size(); ++rank)
    if (!place_.store->check({keys[rank]})) result.push_back(place_.global_ranks[rank]);
  return result;
}

std::string Meeting::decide() {
  std::map<std::string, std::size_t> owners;
  for (std::size_t rank = 0; rank < place_.global_ranks.size(); ++rank) {
    const std::string card = place_.store->try_get(member_key(rank)).value_or("");
    const std::string gpu = card.substr(0, card.find('\n'));
    const std::string name = card.substr(card.find('\n') + 1);
    if (gpu.empty()) continue;
    const auto [owner, is_new] = owners.emplace(gpu, rank);
    if (!is_new)
      return kRefusal + fmt::format("ranks {} and {} both use {}",
                                    place_.global_ranks[owner->second], place_.global_ranks[rank],
                                    name);
  }
  std::string answer(1, kId);
  for (std::size_t i = 0; i < place_.ids; ++i) {
    UniqueId id{};
    const Result result = api_->unique_id(id);
    if (result != Result::success)
      return kRefusal + std::string(failure_of(*api_, result, "make an id").summary());
    answer.append(id.bytes, sizeof(id.bytes));
  }
  return answer;
}

Meeting::Ids Meeting::read(const std::string& answer) const {
  if (!answer.empty() && answer[0] == kRefusal)
    throw Error(ErrorCode::kUnavailable, "nccl cannot make a communicator: " + answer.substr(1),
                "NCCL works with one GPU per rank",
                "start fewer ranks per machine, give each its own GPU (set_device, "
                "CUDA_VISIBLE_DEVICES), or use backend 'staged'");
  Ids ids(place_.ids);
  if (answer.size() != 1 + ids.size() * sizeof(UniqueId) || answer[0] != kId)
    throw Error(ErrorCode::kProtocol, "the store holds no nccl id of this version",
                fmt::format("key {}/id has {} bytes", place_.key, answer.size()),
                "start all ranks with the same build of dtrun");
  for (std::size_t i = 0; i < ids.size(); ++i)
    std::memcpy(ids[i].bytes, answer.data() + 1 + i * sizeof(UniqueId), sizeof(UniqueId));
  return ids;
}

}  // namespace dtrun::collectives::nccl
