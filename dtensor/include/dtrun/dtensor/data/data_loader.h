// DataLoader: the batches of one rank: its share of a Dataset, shuffled by seed and epoch alike on
// all ranks, made ahead by a thread, resumed at any step. torch.utils.data.DataLoader with a
// DistributedSampler.
//
//     DataLoader loader(set, {.batch_size = 16, .rank = mesh.local_rank("dp"), .ranks = 4});
//     for (const Tensors& batch : loader) train(batch[0], batch[1]);   // one epoch
//
// Rank r of p has the numbers r, r + p, ... of the shuffled ones. Ranks that share samples (tensor
// parallel ones) give the same rank. A loader is one thread's.
#pragma once

#include <cstdint>
#include <memory>

#include "dtrun/dtensor/data/dataset.h"

namespace dtrun::dtensor::data {

struct DataLoaderOptions {
  std::int64_t batch_size = 1;  ///< of this rank
  bool shuffle = true;
  std::uint64_t seed = 0;
  int rank = 0;  ///< among those that share the set's samples
  int ranks = 1;
  /// False: what does not fill a batch makes a smaller one, and samples from the beginning give all
  /// ranks as many. True: it is left out.
  bool drop_last = false;
  int prefetch = 2;  ///< batches that are made ahead; 0: none, and no thread
};

/// Which batch comes next.
struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  ///< of the epoch
  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

class DataLoader {
 public:
  /// @throws Error kInvalidArgument for options out of their range, and a set of which a rank has
  /// no batch
  DataLoader(std::shared_ptr<const Dataset> set, DataLoaderOptions options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  std::int64_t batches() const { return batches_; }  ///< of an epoch
  /// The tensors of the samples, stacked: [batch_size, ...] each. The next epoch begins by itself.
  /// What the Dataset throws is thrown here, at the batch that it concerns.
  /// @throws Error kInvalidArgument for samples that are not alike
  Tensors next();
  DataPosition position() const { return position_; }
  /// As it was saved, by whichever rank: the following batches are those that would have come.
  /// @throws Error kInvalidArgument for a step that an epoch does not have
  void set_position(DataPosition position);

  /// Over the batches that are left of this epoch.
  class Iterator {
   public:
    const Tensors& operator*() const { return batch_; }
    Iterator& operator++();
    bool operator==(std::nullptr_t) const { return loader_ == nullptr; }

   private:
    friend class DataLoader;
    explicit Iterator(DataLoader& loader) : loader_(&loader), epoch_(loader.position_.epoch) {
      batch_ = loader.next();
    }
    DataLoader* loader_;
    std::int64_t epoch_;
    Tensors batch_;
  };
  Iterator begin() { return Iterator(*this); }
  std::nullptr_t end() const { return nullptr; }

 private:
  class Ahead;
  Tensors made(DataPosition position) const;
  DataPosition after(DataPosition position) const;

  const std::shared_ptr<const Dataset> set_;
  const DataLoaderOptions options_;
  std::int64_t size_ = 0;     ///< of the set, as it was at first
  std::int64_t samples_ = 0;  ///< of this rank, in an epoch
  std::int64_t batches_ = 0;
  DataPosition position_;
  std::unique_ptr<Ahead> ahead_;
};

}  // namespace dtrun::dtensor::data
