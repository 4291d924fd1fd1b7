#include "dtensor/still_layouts.h"

#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/creation.h"
#include "move/move_observer.h"

namespace dtrun::dtensor {
namespace {

class MoveSeen : public MoveObserver {
 public:
  bool on_move(const Movement&) override { return seen_ = true; }
  bool on_crossing(const CrossMovement&) override { return seen_ = true; }
  bool on_blocks(const BlockMovement&) override { return seen_ = true; }
  bool seen() const { return seen_; }

 private:
  bool seen_ = false;
};

/// How a tensor may lie along one axis, whole last.
std::vector<Placement> ways_of(const Tensor& tensor) {
  std::vector<Placement> ways;
  for (int dim = 0; dim < tensor.dim(); ++dim) ways.push_back(Shard(dim));
  if (tensors::is_floating_point(tensor.dtype())) ways.push_back(Partial());
  ways.push_back(Replicate());
  return ways;
}

/// Whether no element moves or is cut off while it runs.
bool is_still(const std::function<void()>& run) {
  const MoveSeen moves;
  const CommCounter counter;
  run();
  return !moves.seen() && counter.get_total_counts() == 0;
}

}  // namespace

std::vector<std::string> still_layouts(const std::function<Tensor(const Tensors&)>& run,
                                       const Tensors& inputs, const DeviceMesh& mesh) {
  std::vector<std::vector<Placement>> ways;
  std::size_t count = 1;
  for (const Tensor& input : inputs) {
    ways.push_back(ways_of(input));
    count *= ways.back().size();
  }
  std::vector<std::string> still;
  // The last, all whole, is left out.
  for (std::size_t number = 0; number + 1 < count; ++number) {
    Tensors placed;
    std::string text;
    std::size_t rest = number, left = count;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      left /= ways[i].size();
      const Placement way = ways[i][rest / left];
      rest %= left;
      placed.push_back(distribute_tensor(inputs[i], mesh, {way}, {.source_rank = -1}));
      text += (text.empty() ? "" : ", ") + way.to_string();
    }
    Tensor result;
    if (is_still([&] { result = run(placed); }))
      still.push_back(text + " -> " + result.placements()[0].to_string());
  }
  return still;
}

}  // namespace dtrun::dtensor
