#include "nccl/status_board.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "dtrun/base/env.h"

namespace dtrun::collectives::nccl {

using base::Error;
using base::ErrorCode;

namespace {

constexpr char kSeparator = '\x1f';
/// More ranks than these are counted, not listed.
constexpr std::size_t kMostListed = 8;

std::string short_rank_list(const std::vector<int>& ranks) {
  const std::vector<int> listed(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                   ranks.size(), kMostListed)));
  std::string text =
      fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(listed, ", "));
  if (ranks.size() > listed.size()) text += fmt::format(" and {} more", ranks.size() - kMostListed);
  return text;
}

std::vector<std::string> split_fields(const std::string& text) {
  std::vector<std::string> fields(1);
  for (const char c : text) {
    if (c == kSeparator)
      fields.emplace_back();
    else
      fields.back() += c;
  }
  return fields;
}

}  // namespace

StatusBoard::StatusBoard(std::shared_ptr<rendezvous::Store> store, std::string key, int rank,
                         std::vector<int> global_ranks)
    : store_(std::move(store)),
      key_(std::move(key)),
      rank_(rank),
      global_ranks_(std::move(global_ranks)) {}

std::string StatusBoard::status_key(int rank) const {
  return fmt::format("{}/status/{}", key_, rank);
}

void StatusBoard::publish(const Status& status) {
  std::string bytes(1 + sizeof(Fingerprint), static_cast<char>(status.progress));
  std::memcpy(bytes.data() + 1, &status.fingerprint, sizeof(Fingerprint));
  store_->set(status_key(rank_), bytes);
}

std::optional<Status> StatusBoard::read(int rank) {
  const std::optional<std::string> bytes = store_->try_get(status_key(rank));
  if (!bytes || bytes->size() != 1 + sizeof(Fingerprint)) return std::nullopt;
  Status status;
  status.progress = static_cast<Status::Progress>(bytes->front());
  std::memcpy(&status.fingerprint, bytes->data() + 1, sizeof(Fingerprint));
  status.fingerprint.site[sizeof(status.fingerprint.site) - 1] = '\0';
  return status;
}

std::string StatusBoard::describe_others(const Fingerprint& mine) {
  std::vector<int> same;
  std::vector<int> silent;
  std::vector<std::string> others;
  for (std::size_t rank = 0; rank < global_ranks_.size(); ++rank) {
    if (static_cast<int>(rank) == rank_) continue;
    const std::optional<Status> status = read(static_cast<int>(rank));
    const int global_rank = global_ranks_[rank];
    if (!status)
      silent.push_back(global_rank);
    else if (status->progress == Status::Progress::done)
      others.push_back(fmt::format("rank {} has done {} and calls nothing since", global_rank,
                                   status->fingerprint.describe()));
    else if (status->fingerprint.sequence == mine.sequence && status->fingerprint.agrees_with(mine))
      same.push_back(global_rank);
    else
      others.push_back(
          fmt::format("rank {} waits in {}", global_rank, status->fingerprint.describe()));
  }
  if (!same.empty())
    others.push_back(fmt::format("{} wait{} in the same call", short_rank_list(same),
                                 same.size() == 1 ? "s" : ""));
  if (!silent.empty())
    others.push_back(fmt::format("{} ha{} called nothing that took long", short_rank_list(silent),
                                 silent.size() == 1 ? "s" : "ve"));
  return fmt::format("{}", fmt::join(others, "; "));
}

void StatusBoard::publish_failure(const Error& error, Wording wording) {
  std::string text =
      fmt::format("{}{}{}{}{}{}{}", global_ranks_[static_cast<std::size_t>(rank_)], kSeparator,
                  error.summary(), kSeparator, error.why(), kSeparator, error.remedy());
  if (wording == Wording::as_it_stands)
    text += fmt::format("{}{}", kSeparator, static_cast<int>(error.code()));
  store_->compare_set(key_ + "/failure", "", text);
}

std::optional<Error> StatusBoard::read_failure(const std::string& group) {
  const std::optional<std::string> text = store_->try_get(key_ + "/failure");
  if (!text) return std::nullopt;
  const std::vector<std::string> fields = split_fields(*text);
  if (fields.size() == 5)
    return Error(static_cast<ErrorCode>(base::parse_integer(fields[4]).value_or(0)), fields[1],
                 fields[2], fields[3]);
  if (fields.size() != 4) return std::nullopt;
  return Error(ErrorCode::kPeerFailed,
               fmt::format("rank {} failed in group '{}': {}", fields[0], group, fields[1]),
               fields[2], fields[3]);
}

}  // namespace dtrun::collectives::nccl
