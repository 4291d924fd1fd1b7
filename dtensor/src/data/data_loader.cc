#include "dtrun/dtensor/data/data_loader.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "data/shuffle.h"
#include "dtrun/base/blocked_signals.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor::data {

using base::Error;
using base::ErrorCode;

/// The thread, and the batches that it has made. Ends with the batch that could not be made.
class DataLoader::Ahead {
 public:
  Ahead(const DataLoader& loader, DataPosition first, std::size_t most) : most_(most) {
    // The thread inherits the mask, so the program's own threads go on getting the signals.
    const base::BlockedSignals blocked;
    try {
      thread_ = std::thread([this, &loader, first] { make(loader, first); });
    } catch (const std::system_error& error) {
      throw base::system_error("start a DataLoader's thread", error.code().value(),
                               "raise the limit of processes (ulimit -u, pids.max), or load "
                               "without one: {.prefetch = 0}");
    }
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
    // Batches that were made before the failure come first.
    if (batches_.empty()) std::rethrow_exception(failure_);
    Tensors batch = std::move(batches_.front());
    batches_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return batch;
  }

 private:
  void make(const DataLoader& loader, DataPosition position) {
    ::pthread_setname_np(::pthread_self(), "dtrun-data");
    try {
      for (; waited_for_room(); position = loader.after(position)) {
        Tensors batch = loader.made(position);
        {
          const std::lock_guard lock(mutex_);
          batches_.push_back(std::move(batch));
        }
        changed_.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    changed_.notify_all();
  }
  /// False: no more batches are wanted.
  bool waited_for_room() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stops_ || batches_.size() < most_; });
    return !stops_;
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
  const auto parts_of = [&](std::int64_t all, std::int64_t each) {
    return all / each + (options_.drop_last || all % each == 0 ? 0 : 1);
  };
  size_ = set_->size();
  samples_ = parts_of(size_, options_.ranks);
  batches_ = parts_of(samples_, options_.batch_size);
  if (batches_ == 0) {
    refuse("of " + std::to_string(size_) + " samples for " + std::to_string(options_.ranks) +
               " ranks with batches of " + std::to_string(options_.batch_size),
           options_.drop_last ? "more samples, or drop_last = false" : "a set with samples");
  }
}

DataLoader::~DataLoader() = default;

DataPosition DataLoader::after(DataPosition position) const {
  if (++position.step < batches_) return position;
  return {position.epoch + 1, 0};
}

namespace {

/// Refuses a sample that could not be stacked with the batch's first one.
void check_alike(const Tensors& sample, std::int64_t number, const Tensors& first,
                 std::int64_t first_number) {
  const auto refuse = [&](const std::string& what, const std::string& its) {
    throw Error(ErrorCode::kInvalidArgument, "DataLoader: " + what,
                "sample " + std::to_string(first_number) + " has " + its,
                "a Dataset whose samples are alike in the number of tensors, shapes and dtypes");
  };
  const auto counted = [](const Tensors& tensors) {
    return std::to_string(tensors.size()) + (tensors.size() == 1 ? " tensor" : " tensors");
  };
  const auto described = [](const Tensor& tensor) {
    if (!tensor.defined()) return std::string("undefined");
    return std::string(tensors::dtype_short_name(tensor.dtype())) +
           tensors::shape_to_string(tensor.shape());
  };
  const std::string name = "sample " + std::to_string(number);
  if (sample.size() != first.size()) refuse(name + " has " + counted(sample), counted(first));
  for (std::size_t k = 0; k < sample.size(); ++k) {
    const std::string its = described(sample[k]), expected = described(first[k]);
    if (sample[k].defined() && its == expected) continue;
    refuse("tensor " + std::to_string(k) + " of " + name + " is " + its, expected);
  }
}

}  // namespace

Tensors DataLoader::made(DataPosition position) const {
  const Shuffle shuffle(size_, mixed(options_.seed, static_cast<std::uint64_t>(position.epoch)));
  const std::int64_t first = position.step * options_.batch_size;
  const std::int64_t count = std::min(samples_ - first, options_.batch_size);
  std::vector<std::vector<tensors::LocalTensor>> columns;
  Tensors first_sample;
  std::int64_t first_number = 0;
  for (std::int64_t i = first; i < first + count; ++i) {
    // Without drop_last the last samples are taken from the beginning again, so that all ranks have
    // equally many steps.
    const std::int64_t place = (i * options_.ranks + options_.rank) % size_;
    const std::int64_t number = options_.shuffle ? shuffle(place) : place;
    const Tensors sample = set_->get(number);
    if (i == first) {
      first_sample = sample;
      first_number = number;
      columns.resize(sample.size());
    }
    check_alike(sample, number, first_sample, first_number);
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
  if (loader_->position_.epoch != epoch_) {
    loader_ = nullptr;
    batch_.clear();
  } else {
    batch_ = loader_->next();
  }
  return *this;
}

}  // namespace dtrun::dtensor::data
