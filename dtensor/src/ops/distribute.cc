// Making distributed tensors from whole ones: distribute_tensor and the factories.
#include <algorithm>
#include <string>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/ops.h"
#include "move/asked_spec.h"
#include "move/cause.h"
#include "move/move_observer.h"
#include "move/redistribute.h"
#include "ops/factory.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using tensors::Shape;

/// The axes as the data spreads: cuts first, outermost first, so that the broadcasts after them
/// carry only chunks.
std::vector<int> spreading_order(const Layout& layout) {
  std::vector<int> axes;
  for (const auto& [dim, cutting] : layout.order()) {
    axes.insert(axes.end(), cutting.begin(), cutting.end());
  }
  for (std::size_t a = 0; a < layout.axes(); ++a) {
    if (!layout.is_shard(a)) axes.push_back(static_cast<int>(a));
  }
  return axes;
}

/// The data of the one source rank on its way over the mesh, axis by axis. A rank has data once its
/// coordinate is the source's on all axes that are still to come; lines without data are silent.
class Spread {
 public:
  Spread(const Spec& spec, const LocalTensor& tensor, int source, const Tensor::Site& site)
      : spec_(spec),
        mesh_(spec.mesh()),
        source_(source),
        site_(site),
        shape_(tensor.shape()),
        like_(tensor) {
    to_come_ = spreading_order(spec.layout());
    if (stands_at_source(to_come_)) data_ = tensor;
  }

  /// What run() would send and receive. No communication.
  EntryMovement rehearsed() {
    EntryMovement entry{spec_, "rank " + std::to_string(source_) + "'s", {}, {}, {}};
    Shape most = shape_;  // of what the busiest rank has
    while (!to_come_.empty()) {
      const int axis = to_come_.front();
      to_come_.erase(to_come_.begin());
      const Placement& placement = spec_.placements()[static_cast<std::size_t>(axis)];
      note(axis, placement.is_shard() ? placement.dim() : -1, most, entry);
    }
    return entry;
  }

  LocalTensor run() {
    while (!to_come_.empty()) {
      const int axis = to_come_.front();
      to_come_.erase(to_come_.begin());
      const Placement& placement = spec_.placements()[static_cast<std::size_t>(axis)];
      placement.is_shard() ? scatter(axis, placement.dim()) : broadcast(axis);
    }
    return data_;
  }

 private:
  bool stands_at_source(const std::vector<int>& axes) const {
    return std::ranges::all_of(axes,
                               [this](int axis) { return mesh_.local_rank(axis) == source_; });
  }
  bool line_has_data(int axis) const { return mesh_.size(axis) > 1 && stands_at_source(to_come_); }

  /// @param dim that is scattered; -1: a broadcast
  void note(int axis, int dim, Shape& most, EntryMovement& entry) {
    const int ranks = mesh_.size(axis);
    const std::int64_t before = bytes_of(shape_), most_before = bytes_of(most);
    if (dim >= 0) {
      std::int64_t &size = shape_[static_cast<std::size_t>(dim)],
                   &largest = most[static_cast<std::size_t>(dim)];
      size = chunk(axis, size, mesh_.local_rank(axis)).size;
      largest = chunk(axis, largest, source_).size;
    }
    if (ranks == 1) return;
    const std::int64_t own = bytes_of(shape_), others = ranks - 1;
    const bool is_source = mesh_.local_rank(axis) == source_;
    if (line_has_data(axis)) {
      if (is_source) entry.traffic.sent += dim < 0 ? own * others : before - own;
      if (!is_source) entry.traffic.received += own;
    }
    const LinkRate& link = mesh_.links()[static_cast<std::size_t>(axis)];
    const std::int64_t sent = dim < 0 ? most_before * others : most_before - bytes_of(most);
    entry.cost += PlanCost{link.latency + static_cast<double>(sent) / link.bytes_per_second, 1};
    const std::vector<std::string>& names = mesh_.axis_names();
    entry.steps.push_back(
        std::string(dim < 0 ? "broadcast" : "scatter") + " along " +
        (names.empty() ? "axis " + std::to_string(axis) : names[static_cast<std::size_t>(axis)]));
  }
  std::int64_t bytes_of(const Shape& shape) const {
    return tensors::numel(shape) * static_cast<std::int64_t>(tensors::item_size(like_.dtype()));
  }

  void scatter(int axis, int dim) {
    const int parts = mesh_.size(axis);
    const std::int64_t whole = shape_[static_cast<std::size_t>(dim)];
    shape_[static_cast<std::size_t>(dim)] = chunk(axis, whole, mesh_.local_rank(axis)).size;
    if (!line_has_data(axis)) return;
    std::vector<LocalTensor> chunks;
    for (int i = 0; i < parts && data_.defined(); ++i) {
      const Chunk part = chunk(axis, whole, i);
      chunks.push_back(data_.narrow(dim, part.offset, part.size));
    }
    const LocalTensor mine = empty();
    mesh_.group(axis).scatter(mine, chunks, source_, {}, site_);
    data_ = mine;
  }

  Chunk chunk(int axis, std::int64_t whole, int rank) const {
    return spec_.layout().chunk(static_cast<std::size_t>(axis), whole, mesh_.size(axis), rank);
  }

  void broadcast(int axis) {
    if (!line_has_data(axis)) return;
    if (!data_.defined()) data_ = empty();
    mesh_.group(axis).broadcast(data_, source_, {}, site_);
  }

  LocalTensor empty() const {
    return tensors::empty(shape_, {.dtype = like_.dtype(), .device = like_.device()});
  }

  const Spec& spec_;
  const DeviceMesh mesh_;
  const int source_;
  const Tensor::Site& site_;
  Shape shape_;  ///< of this rank's data after the axes so far
  const LocalTensor& like_;
  LocalTensor data_;  ///< undefined: none yet
  std::vector<int> to_come_;
};

LocalTensor cut(const LocalTensor& tensor, const Box& box) {
  LocalTensor part = tensor;
  for (std::size_t d = 0; d < box.shape.size(); ++d) {
    part = part.narrow(static_cast<int>(d), box.offsets[d], box.shape[d]);
  }
  return part;
}

void check_source(const DeviceMesh& mesh, int source) {
  const int smallest = *std::ranges::min_element(mesh.shape());
  if (source >= -1 && source < smallest) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      "no rank of " + mesh.to_string() + " stands at " + std::to_string(source) + " on every axis",
      "the source rank is a coordinate on each axis, or -1 for no communication",
      "use a number from -1 to " + std::to_string(smallest - 1));
}

Tensor made(Spec spec, const LocalTensor& local) {
  LocalTensor placed = redistribute_local({spec.mesh(), spec.shape()},
                                          without_partials(spec.layout()), spec.layout(), local);
  return Tensor(std::move(spec), std::move(placed));
}

}  // namespace

Tensor distribute_tensor(const Tensor& given, const DeviceMesh& mesh, const Placements& placements,
                         DistributeOptions options, Tensor::Site site) {
  const Cause cause("distribute_tensor", Cause::Wish::asked, site);
  const LocalTensor tensor = given.defined() ? given.plain_local() : LocalTensor();
  if (!tensor.defined() || tensor.device().type != mesh.device_type()) {
    throw Error(ErrorCode::kInvalidArgument,
                "distribute_tensor needs a tensor on the mesh's device type on every rank",
                tensor.defined() ? "this one is on " + tensor.device().to_string()
                                 : "this one is undefined",
                "only the source rank's data counts, but all give shape and dtype");
  }
  check_source(mesh, options.source_rank);
  Spec spec = asked_spec("distribute_tensor", site, mesh, placements, tensor.shape(),
                         tensor.dtype(), options.shard_order);
  if (spec.is_outside()) return Tensor::outside(std::move(spec), tensor.device());
  const bool is_rehearsed = MoveObserver::rehearsing(),
             is_silent = options.source_rank < 0 || is_rehearsed;
  if (is_rehearsed && options.source_rank >= 0) {
    const EntryMovement entry = Spread(spec, tensor, options.source_rank, site).rehearsed();
    if (!entry.steps.empty()) MoveObserver::tell(entry);
  }
  LocalTensor local = is_silent ? cut(tensor, spec.local_box())
                                : Spread(spec, tensor, options.source_rank, site).run();
  // Later writes to the caller's tensor must not show on some ranks only.
  if (local.storage() == tensor.storage()) local = local.clone();
  return made(std::move(spec), local);
}

Tensor make_parts(
    const Shape& shape, const DeviceMesh& mesh, const Placements& placements, DType dtype,
    const ShardOrder& order,
    const std::function<LocalTensor(const Box& box, tensors::TensorOptions options)>& part) {
  const Cause cause("a factory", Cause::Wish::asked);
  tensors::numel(shape);  // of the whole; a part may have no negative size
  const tensors::Device device = mesh.device();
  Spec spec = make_spec(mesh, placements, shape, dtype, order);
  if (spec.is_outside()) return Tensor::outside(std::move(spec), device);
  const LocalTensor local = part(spec.local_box(), {dtype, device});
  return made(std::move(spec), local);
}

Tensor make_like(
    const Tensor& a,
    const std::function<LocalTensor(const Box& box, tensors::TensorOptions options)>& part) {
  const tensors::TensorOptions options{a.dtype(), a.device()};
  if (!a.is_distributed()) return part({Shape(a.shape().size(), 0), a.shape()}, options);
  Spec spec = a.spec();
  Placements whole = without_partials(spec.placements());
  if (whole != spec.placements())
    spec = make_spec(spec.mesh(), std::move(whole), spec.shape(), spec.dtype(), spec.shard_order());
  LocalTensor local = part(spec.local_box(), options);
  return Tensor(std::move(spec), std::move(local));
}

}  // namespace dtrun::dtensor
