#include "dtrun/dtensor/data/data_loader.h"

#include <signal.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "data/shuffle.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor::data {

using base::Error;
using base::ErrorCode;

/// The thread, and the batches that it has made. Ends with the batch that could not be made.
class DataLoader::Ahead {
 public:
  Ahead(const DataLoader& loader, DataPosition first, std::size_t most) : most_(most) {
    // The signals of the program are for its own threads.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, &before);
    thread_ = std::thread([this, &loader, first] { make(loader, first); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Ahead() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  Tensors take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !batches_.empty() || failure_ != nullptr; });
    if (batches_.empty()) std::rethrow_exception(failure_);
    Tensors batch = std::move(batches_.front());
    batches_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return batch;
  }

 private:
  void make(const DataLoader& loader, DataPosition position) {
    try {
      for (;; position = loader.after(position)) {
        Tensors batch = loader.made(position);
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stops_ || batches_.size() < most_; });
        if (stops_) return;
        batches_.push_back(std::move(batch));
        lock.unlock();
        changed_.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    changed_.notify_all();
  }

  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Tensors> batches_;
  std::exception_ptr failure_;
  bool stops_ = false;
  std::thread thread_;
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> set, DataLoaderOptions options)
    : set_(std::move(set)), options_(options) {
  const auto refuse = [](const std::string& what, const std::string& remedy) {
    throw Error(ErrorCode::kInvalidArgument, "DataLoader " + what, "", remedy);
  };
  if (set_ == nullptr) refuse("of no set", "a Dataset, by std::make_shared");
  if (options_.batch_size < 1 || options_.prefetch < 0) {
    refuse("with batches of " + std::to_string(options_.batch_size) + " and " +
               std::to_string(options_.prefetch) + " ahead",
           "batches of at least one sample, and a prefetch of at least 0");
  }
  if (options_.ranks < 1 || options_.rank < 0 || options_.rank >= options_.ranks) {
    refuse("of rank " + std::to_string(options_.rank) + " of " + std::to_string(options_.ranks),
           "a rank below the number of ranks, such as mesh.local_rank(\"dp\")");
  }
  samples_ = (set_->size() + (options_.drop_last ? 0 : options_.ranks - 1)) / options_.ranks;
  batches_ = (samples_ + (options_.drop_last ? 0 : options_.batch_size - 1)) / options_.batch_size;
  if (batches_ == 0) {
    refuse("of " + std::to_string(set_->size()) + " samples for " + std::to_string(options_.ranks) +
               " ranks with batches of " + std::to_string(options_.batch_size),
           options_.drop_last ? "more samples, or drop_last = false" : "a set with samples");
  }
}

DataLoader::~DataLoader() = default;

DataPosition DataLoader::after(DataPosition position) const {
  if (++position.step < batches_) return position;
  return {position.epoch + 1, 0};
}

Tensors DataLoader::made(DataPosition position) const {
  const std::int64_t size = set_->size();
  const Shuffle shuffle(size, mixed(options_.seed, static_cast<std::uint64_t>(position.epoch)));
  const std::int64_t first = position.step * options_.batch_size;
  const std::int64_t last = std::min(samples_, first + options_.batch_size);
  std::vector<std::vector<tensors::LocalTensor>> columns;
  for (std::int64_t i = first; i < last; ++i) {
    const std::int64_t place = (i * options_.ranks + options_.rank) % size;
    const Tensors sample = set_->get(options_.shuffle ? shuffle(place) : place);
    columns.resize(sample.size());
    for (std::size_t k = 0; k < sample.size(); ++k) columns[k].push_back(sample[k].plain_local());
  }
  Tensors batch;
  for (const auto& column : columns) batch.emplace_back(tensors::stack(column));
  return batch;
}

Tensors DataLoader::next() {
  Tensors batch;
  if (options_.prefetch == 0) {
    batch = made(position_);
  } else {
    if (ahead_ == nullptr) {
      ahead_ =
          std::make_unique<Ahead>(*this, position_, static_cast<std::size_t>(options_.prefetch));
    }
    try {
      batch = ahead_->take();
    } catch (...) {
      // Asked again, it tries again.
      ahead_.reset();
      throw;
    }
  }
  position_ = after(position_);
  return batch;
}

void DataLoader::set_position(DataPosition position) {
  if (position.epoch < 0 || position.step < 0 || position.step >= batches_) {
    throw Error(ErrorCode::kInvalidArgument,
                "DataLoader at step " + std::to_string(position.step) + " of epoch " +
                    std::to_string(position.epoch),
                "an epoch has " + std::to_string(batches_) + " steps",
                "a position of a loader with as many samples, ranks and batches");
  }
  ahead_.reset();
  position_ = position;
}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  if (loader_->position_.step == 0) {
    loader_ = nullptr;
    batch_.clear();
  } else {
    batch_ = loader_->next();
  }
  return *this;
}

}  // namespace dtrun::dtensor::data
