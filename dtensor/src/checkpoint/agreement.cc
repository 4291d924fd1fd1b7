#include "dtrun/dtensor/checkpoint/agreement.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstring>
#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/base/json.h"
#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;
using tensors::DType;
using tensors::LocalTensor;
namespace json = boost::json;

namespace {

// A message is this, and what the work gave, or an Error as JSON.
constexpr char kDone = '+';
constexpr char kFailed = '-';

std::string failed_text(const Error& error) {
  return kFailed + json::serialize(json::array{static_cast<int>(error.code()), error.summary(),
                                               error.why(), error.remedy()});
}

Error error_in(const std::string& text, int rank, int size) {
  const json::value parsed = base::parse_json(std::string_view(text).substr(1), "a rank's verdict");
  const json::array& fields = parsed.as_array();
  const auto field = [&](std::size_t i) { return std::string(fields.at(i).as_string()); };
  const std::string who = size == 1 ? "" : "rank " + std::to_string(rank) + ": ";
  return {static_cast<ErrorCode>(fields.at(0).as_int64()), who + field(1), field(2), field(3)};
}

/// Where the group's tensors may lie.
tensors::Device device_of(const collectives::ProcessGroup& group) {
  return group.serves(tensors::DeviceType::cpu)
             ? tensors::kCpu
             : tensors::Device{tensors::DeviceType::cuda, tensors::cuda::current_device()};
}

}  // namespace

std::vector<std::string> GroupAgreement::exchange(const std::string& own) {
  const tensors::Device device = device_of(group_);
  const LocalTensor all_sizes = tensors::zeros({size()}, {DType::i64, device});
  group_.all_gather_into_tensor(
      all_sizes, tensors::full({1}, static_cast<std::int64_t>(own.size()), {DType::i64, device}));
  const std::vector<std::int64_t> sizes = all_sizes.to_vector_i64();
  // All of the longest one's size: one operation on every backend.
  const std::int64_t longest = std::max<std::int64_t>(1, std::ranges::max(sizes));
  const LocalTensor text = tensors::zeros({longest}, {.dtype = DType::u8});
  if (!own.empty()) std::memcpy(text.data(), own.data(), own.size());
  const LocalTensor texts = tensors::empty({size() * longest}, {DType::u8, device});
  group_.all_gather_into_tensor(texts, text.to(device));
  const LocalTensor here = texts.to(tensors::kCpu);
  std::vector<std::string> all;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank)
    all.emplace_back(here.data_as<char>() + rank * static_cast<std::size_t>(longest),
                     static_cast<std::size_t>(sizes[rank]));
  return all;
}

StoreAgreement::StoreAgreement(std::shared_ptr<rendezvous::Store> store, const std::string& name,
                               int rank, int size, base::Deadline::Duration timeout)
    : store_(std::move(store)),
      name_(name + "/" +
            std::to_string(store_->add("checkpoint/" + name + "/made/" + std::to_string(rank), 1))),
      rank_(rank),
      size_(size),
      timeout_(timeout) {}

std::string StoreAgreement::key(std::int64_t round, int rank) const {
  return "checkpoint/" + name_ + "/" + std::to_string(round) + "/" + std::to_string(rank);
}

// Who has read all keys of a round has seen that all ranks have read the round before: its own key
// of two rounds ago is nobody's any more.
std::vector<std::string> StoreAgreement::exchange(const std::string& own) {
  if (is_lost_)
    throw Error(ErrorCode::kConnection, "the ranks of \"" + name_ + "\" are out of step",
                "an exchange between them has failed before", "a new saver, on all ranks");
  is_lost_ = true;
  const auto deadline = base::Deadline::after(timeout_);
  store_->set(key(round_, rank_), own, deadline);
  rendezvous::Store::Keys keys;
  for (int rank = 0; rank < size_; ++rank) keys.push_back(key(round_, rank));
  std::vector<std::string> all = store_->multi_get(keys, deadline);
  if (round_ > 0) store_->delete_key(key(round_ - 1, rank_), deadline);
  ++round_;
  is_lost_ = false;
  return all;
}

std::vector<std::string> together(Agreement& agreement, const std::function<std::string()>& work) {
  std::string own;
  try {
    own = kDone + work();
  } catch (const Error& error) {
    own = failed_text(error);
  } catch (const std::exception& error) {
    own = failed_text({ErrorCode::kSystem, error.what()});
  }
  std::vector<std::string> all = agreement.exchange(own);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].starts_with(kFailed))
      throw error_in(all[rank], static_cast<int>(rank), agreement.size());
  }
  for (std::string& text : all) text.erase(0, 1);
  return all;
}

}  // namespace dtrun::dtensor::dcp
