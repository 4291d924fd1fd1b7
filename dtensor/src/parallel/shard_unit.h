// ShardUnit: a module whose parameters are whole during its forward and its backward, and in parts
// else; ShardRun: what the units of one fully_shard() do after each other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "dtrun/dtensor/autograd/backward_end.h"
#include "parallel/sharded_block.h"

namespace dtrun::dtensor {

class ShardRun;

/// What whole parameters are shown for.
enum class Shown : unsigned char {
  forward,
  recomputed,  ///< to parts of the unit that its backward computes once more
};

class ShardUnit : public std::enable_shared_from_this<ShardUnit> {
 public:
  ShardUnit(std::string path, std::vector<ShardedBlock> blocks, Reshard reshard)
      : path_(std::move(path)), blocks_(std::move(blocks)), reshard_(reshard) {}

  const std::string& path() const { return path_; }
  std::vector<ShardedBlock>& blocks() { return blocks_; }

  void start_gather();
  /// Makes it whole. Collective.
  void gather();
  /// Not while it is shown.
  void give_back();
  /// Whether these elements lie in whole parameters, and are gone with them.
  bool holds(const Tensor& tensor) const;

  // While it is shown, the user's handles are the whole parameters.
  /// @param run whose gradients these are part of, where one is wanted
  void show(ShardRun& run, Shown purpose);
  void hide();
  bool is_shown() const { return shown_ > 0; }
  bool gives_back_after_forward() const { return reshard_ == Reshard::after_forward; }

  /// The parameters' distributed tensors, of one block, shown or not.
  Tensors sharded(std::size_t block) const;

 private:
  const std::string path_;
  std::vector<ShardedBlock> blocks_;
  const Reshard reshard_;
  int shown_ = 0;
  /// While it is shown, the distributed ones: by block, then by parameter.
  std::vector<Tensors> hidden_;
};

class ShardRun : public std::enable_shared_from_this<ShardRun> {
 public:
  explicit ShardRun(int prefetch) : prefetch_(prefetch) {}
  void add(std::shared_ptr<ShardUnit> unit) { units_.push_back(std::move(unit)); }

  void before_forward(ShardUnit& unit);
  /// Also where the forward has thrown.
  void after_forward(ShardUnit& unit);
  /// A gradient has come to what the unit gave.
  void before_backward(ShardUnit& unit);
  /// All gradients of the whole parameters are there. @param gradients by block, by parameter
  void reduce(ShardUnit& unit, const std::vector<Tensors>& gradients);
  /// The unit's backward has ended.
  void after_backward(ShardUnit& unit);
  /// What a recomputed part of the model adds, to be reduced when the pass ends.
  void at_end(std::function<void()> flush);

 private:
  struct Pending {
    ShardUnit* unit;
    std::size_t block;
    ShardedBlock::Reduction reduction;
    bool is_scattered = false;
  };

  enum class Direction : signed char { back = -1, on = 1 };
  void prefetch(const ShardUnit& unit, Direction direction);
  void join_pass();
  /// Waits for the gradients that travel, and frees the buffers that they were sent from.
  void finish_scatters();
  void end_pass(BackwardEnd end);
  void deliver(Pending& pending);

  const int prefetch_;
  std::vector<std::shared_ptr<ShardUnit>> units_;
  std::vector<ShardUnit*> order_;  ///< of the first forward
  bool has_order_ = false;
  int calls_ = 0;  ///< of units, under way
  bool in_pass_ = false;
  std::vector<ShardUnit*> shown_in_backward_;
  std::vector<std::function<void()>> flushes_;
  std::vector<Pending> pending_;
};

}  // namespace dtrun::dtensor
