#include "dtrun/dtensor/layout/sharding_spec.h"

#include <algorithm>
#include <set>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/base/split.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using tensors::Shape;

// ColossalAI's costs (its sharding_spec.py). They have no unit: only the order of the sums counts.
constexpr int kAllGatherCost = 20;
constexpr int kShardCost = 5;
constexpr int kStepPenalty = 6;

[[noreturn]] void refuse_spec(const std::string& what, std::string why, std::string remedy) {
  throw Error(ErrorCode::kInvalidArgument, what, std::move(why), std::move(remedy));
}

[[noreturn]] void refuse_sequence(std::string_view text, const std::string& why) {
  refuse_spec("'" + std::string(text) + "' is no sharding sequence", why,
              "an entry per tensor dim, R or S and the axes that cut it: [S01, R]");
}

DimSpec dim_spec(std::string_view text, std::string_view entry) {
  if (entry == "R") return {};
  const auto is_digit = [](char letter) { return letter >= '0' && letter <= '9'; };
  if (entry.size() < 2 || entry[0] != 'S' || !std::ranges::all_of(entry.substr(1), is_digit)) {
    refuse_sequence(text, "'" + std::string(entry) + "' is neither R nor S and axes");
  }
  DimSpec spec;
  // One digit is one axis: "S10" is axis 1, then axis 0. A mesh has at most 8 axes.
  for (const char digit : entry.substr(1)) spec.shard_list.push_back(digit - '0');
  return spec;
}

}  // namespace

std::string DimSpec::to_string() const {
  if (is_replica()) return "R";
  std::string text = "S";
  for (const int axis : shard_list) text += std::to_string(axis);
  return text;
}

int DimSpec::difference(const DimSpec& other) const {
  // Axes that both lists begin with stay. The others of this list are gathered from the innermost
  // on, then those of the other list cut.
  const auto [left, right] = std::ranges::mismatch(shard_list, other.shard_list);
  const int gathers = static_cast<int>(shard_list.end() - left);
  const int cuts = static_cast<int>(other.shard_list.end() - right);
  if (gathers + cuts == 0) return 0;
  return gathers * kAllGatherCost + cuts * kShardCost + (gathers + cuts - 1) * kStepPenalty;
}

ShardingSpec::ShardingSpec(int dim_size, const DimPartition& dim_partition_dict) {
  sequence_.resize(static_cast<std::size_t>(std::max(dim_size, 0)));
  for (const auto& [dim, axes] : dim_partition_dict) {
    const int place = dim < 0 ? dim + dim_size : dim;
    if (place < 0 || place >= dim_size) {
      refuse_spec(
          "sharding dimension mismatch: dim " + std::to_string(dim) + " of a tensor of " +
              std::to_string(dim_size) + " dims",
          "its dims are " + std::to_string(-dim_size) + " to " + std::to_string(dim_size - 1), "");
    }
    std::vector<int>& list = sequence_[static_cast<std::size_t>(place)].shard_list;
    list.insert(list.end(), axes.begin(), axes.end());
  }
  check_axes();
}

ShardingSpec ShardingSpec::from_sequence(const std::vector<DimSpec>& sharding_sequence) {
  ShardingSpec spec(0);
  spec.sequence_ = sharding_sequence;
  spec.check_axes();
  return spec;
}

void ShardingSpec::check_axes() const {
  std::set<int> used;
  for (const DimSpec& dim : sequence_) {
    for (const int axis : dim.shard_list) {
      if (axis < 0) refuse_spec("there is no mesh axis " + std::to_string(axis), "", "");
      if (!used.insert(axis).second) {
        refuse_spec(to_string() + " is no way to cut a tensor",
                    "axis " + std::to_string(axis) + " cuts twice", "use each axis once");
      }
    }
  }
}

ShardingSpec ShardingSpec::parse(std::string_view text) {
  std::string packed;
  for (const char letter : text) {
    if (letter != ' ') packed += letter;
  }
  if (packed.size() < 2 || packed.front() != '[' || packed.back() != ']') {
    refuse_sequence(text, "it does not stand between [ and ]");
  }
  std::vector<DimSpec> sequence;
  const std::string_view inside = std::string_view(packed).substr(1, packed.size() - 2);
  if (!inside.empty()) {
    for (const std::string_view dim : base::split(inside, ','))
      sequence.push_back(dim_spec(text, dim));
  }
  return from_sequence(sequence);
}

ShardingSpec ShardingSpec::of(const Layout& layout, std::size_t dims) {
  for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
    if (!layout.is_partial(axis) && !layout.is_ragged(axis)) continue;
    refuse_spec(layout.to_string() + " has no sharding sequence",
                layout.is_ragged(axis) ? "a sequence has no word for the sizes of a ragged shard"
                                       : "a sequence knows S and R only",
                "redistribute() axis " + std::to_string(axis) + " first");
  }
  return ShardingSpec(static_cast<int>(dims), layout.order());
}

ShardingSpec::DimPartition ShardingSpec::dim_partition_dict() const {
  DimPartition partition;
  for (std::size_t dim = 0; dim < sequence_.size(); ++dim) {
    if (!sequence_[dim].is_replica()) partition[static_cast<int>(dim)] = sequence_[dim].shard_list;
  }
  return partition;
}

Layout ShardingSpec::layout(const Shape& global_shape, const std::vector<int>& mesh_shape) const {
  if (sequence_.size() != global_shape.size()) {
    refuse_spec("sharding dimension mismatch: " + to_string() + " for a tensor of shape " +
                    tensors::shape_to_string(global_shape),
                "it has " + std::to_string(sequence_.size()) + " entries for a tensor of " +
                    std::to_string(global_shape.size()) + " dims",
                "give an entry per dim");
  }
  Placements placements(mesh_shape.size(), Replicate());
  for (std::size_t dim = 0; dim < sequence_.size(); ++dim) {
    for (const int axis : sequence_[dim].shard_list) {
      if (static_cast<std::size_t>(axis) >= mesh_shape.size()) {
        refuse_spec(to_string() + " does not fit the mesh",
                    "the mesh has no axis " + std::to_string(axis) + ", it has " +
                        std::to_string(mesh_shape.size()),
                    "");
      }
      placements[static_cast<std::size_t>(axis)] = Shard(static_cast<int>(dim));
    }
  }
  return make_layout(global_shape, mesh_shape, std::move(placements), dim_partition_dict());
}

void ShardingSpec::require_even(const Shape& global_shape,
                                const std::vector<int>& mesh_shape) const {
  static_cast<void>(layout(global_shape, mesh_shape));
  for (std::size_t dim = 0; dim < sequence_.size(); ++dim) {
    std::int64_t ranks = 1;
    for (const int axis : sequence_[dim].shard_list) {
      ranks *= mesh_shape[static_cast<std::size_t>(axis)];
    }
    if (global_shape[dim] % ranks == 0) continue;
    refuse_spec(to_string() + " does not cut " + tensors::shape_to_string(global_shape) + " evenly",
                "dim " + std::to_string(dim) + " has " + std::to_string(global_shape[dim]) +
                    " elements for " + std::to_string(ranks) + " ranks",
                "dtrun's own layouts may be uneven: ask for them without this demand");
  }
}

int ShardingSpec::spec_diff(const ShardingSpec& other) const {
  if (other.dims() != dims()) {
    refuse_spec(
        "sharding dimension mismatch: " + to_string() + " and " + other.to_string(),
        "they are of " + std::to_string(dims()) + " and " + std::to_string(other.dims()) + " dims",
        "");
  }
  int difference = 0;
  for (std::size_t dim = 0; dim < sequence_.size(); ++dim) {
    difference += sequence_[dim].difference(other.sequence_[dim]);
  }
  return difference;
}

std::string ShardingSpec::to_string() const {
  std::string text;
  for (const DimSpec& dim : sequence_) text += (text.empty() ? "" : ", ") + dim.to_string();
  return "[" + text + "]";
}

}  // namespace dtrun::dtensor
