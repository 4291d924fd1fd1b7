// from_local: what each rank has, as one tensor.
#include <algorithm>
#include <string>
#include <utility>

#include "autograd/step_node.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/tensor/ops.h"
#include "mesh/spec_table.h"
#include "move/cause.h"
#include "move/move_observer.h"
#include "ops/gradient_layout.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

/// The global shape that follows from this rank's part.
struct GrownShape {
  Shape shape;
  bool is_guessed = false;  ///< it takes it that other ranks have as much
};

/// Ragged placements tell the size of their dim; others cut evenly.
GrownShape grown_shape(const Shape& local, DType dtype, const DeviceMesh& mesh,
                       const Placements& placements) {
  Placements even = placements;
  for (Placement& placement : even) placement = placement.even();
  const Spec spec = make_spec(mesh, even, local, dtype);
  GrownShape grown{local};
  std::vector<bool> is_told(local.size(), false);
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].is_ragged()) continue;
    const auto dim = static_cast<std::size_t>(spec.layout().dim(axis));
    grown.shape[dim] = placements[axis].cut()->total();
    is_told[dim] = true;
  }
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].is_shard()) continue;
    const auto dim = static_cast<std::size_t>(spec.layout().dim(axis));
    if (is_told[dim]) continue;
    grown.shape[dim] *= mesh.size(static_cast<int>(axis));
    grown.is_guessed = true;
  }
  return grown;
}

void check_local(const LocalTensor& local, const DeviceMesh& mesh) {
  if (!local.defined()) {
    throw Error(ErrorCode::kInvalidArgument, "from_local got an undefined tensor", "",
                "pass an empty tensor where this rank holds nothing");
  }
  if (local.device().type != mesh.device_type()) {
    throw Error(ErrorCode::kInvalidArgument,
                "a tensor on " + local.device().to_string() + " does not fit " + mesh.to_string(),
                "", "move it with to(Device), or make the mesh for that device type");
  }
}

/// What a rank says of its part, in a message of one size.
struct PartNote {
  static constexpr std::size_t kMostDims = 32;

  DType dtype;
  Shape shape;
  std::int64_t placing = 0;  ///< a digest of its placements, in which all must agree

  LocalTensor packed() const {
    LocalTensor tensor = tensors::zeros({3 + kMostDims}, {.dtype = DType::i64});
    auto* const numbers = static_cast<std::int64_t*>(tensor.data());
    numbers[0] = static_cast<std::int64_t>(dtype);
    numbers[1] = static_cast<std::int64_t>(shape.size());
    numbers[2] = placing;
    std::copy_n(shape.begin(), std::min(shape.size(), kMostDims), numbers + 3);
    return tensor;
  }
  static PartNote unpacked(const LocalTensor& tensor) {
    const auto* const numbers = static_cast<const std::int64_t*>(tensor.data());
    PartNote note{static_cast<DType>(numbers[0]), {}, numbers[2]};
    const auto dims = std::min(static_cast<std::size_t>(numbers[1]), kMostDims);
    for (std::size_t i = 0; i < dims; ++i) note.shape.push_back(numbers[3 + i]);
    return note;
  }
  std::string to_string() const {
    return std::string(tensors::dtype_short_name(dtype)) + tensors::shape_to_string(shape);
  }
};

/// The same in every process.
std::int64_t digest_of(const Layout& layout) {
  std::uint64_t digest = 0xcbf29ce484222325;
  for (const char letter : layout.to_string())
    digest = (digest ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return static_cast<std::int64_t>(digest);
}

/// Every rank's, by its place in the mesh. Collective.
std::vector<PartNote> notes_of_all(const LocalTensor& local, const Spec& spec,
                                   const Tensor::Site& site) {
  const DeviceMesh mesh = spec.mesh();
  const LocalTensor own =
      PartNote{local.dtype(), local.shape(), digest_of(spec.layout())}.packed().to(local.device());
  std::vector<LocalTensor> all;
  for (int rank = 0; rank < mesh.size(); ++rank)
    all.push_back(tensors::empty(own.shape(), {own.dtype(), own.device()}));
  mesh.group().all_gather(all, own, {}, site);
  std::vector<PartNote> notes;
  for (const LocalTensor& each : all) notes.push_back(PartNote::unpacked(each.to(tensors::kCpu)));
  return notes;
}

Shape box_shape_of(const Spec& spec, int rank) {
  const DeviceMesh mesh = spec.mesh();
  return local_box(spec.shape(), mesh.shape(), mesh.coordinate_of(rank), spec.layout()).shape;
}

std::string remedy_for(const Placements& placements) {
  const auto shard =
      std::ranges::find_if(placements, [](const Placement& p) { return p.is_shard(); });
  if (shard == placements.end()) return "give every rank a part of one shape";
  if (shard->is_ragged()) return "give sizes as the parts are";
  return "Shard(" + std::to_string(shard->dim()) +
         ") cuts as torch.chunk does: every chunk but the last ones has ceil(n / ranks); for "
         "parts of other sizes name them, one per rank: Shard(" +
         std::to_string(shard->dim()) + ", {sizes})";
}

/// All ranks find the same, and throw alike.
void check_placings(const std::vector<PartNote>& notes, const Spec& own) {
  for (std::size_t rank = 1; rank < notes.size(); ++rank) {
    if (notes[rank].placing == notes[0].placing) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        "from_local with placements that do not agree: rank " + std::to_string(rank) +
            " of the mesh has others than rank 0",
        "this rank, " + std::to_string(own.mesh().rank()) + ", has " + own.layout().to_string(),
        "give all ranks the same placements; of a ragged shard the sizes of all of them");
  }
}

/// All ranks find the same, and throw alike.
/// @param spec where it is guessed, by the first rank's part
void check_parts(const std::vector<PartNote>& notes, const Spec& spec, bool is_guessed) {
  for (std::size_t rank = 0; rank < notes.size(); ++rank) {
    const PartNote& note = notes[rank];
    const PartNote wanted{notes[0].dtype, box_shape_of(spec, static_cast<int>(rank)), 0};
    if (note.dtype == wanted.dtype && note.shape == wanted.shape) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "from_local of parts that do not fit: rank " + std::to_string(rank) +
                    " of the mesh has " + note.to_string(),
                is_guessed ? "rank 0 has " + wanted.to_string() +
                                 ", and without the global shape all parts must be of one"
                           : spec.to_string() + " gives it " + wanted.to_string(),
                is_guessed ? "give the global shape, {.shape = ..., .has_shape = true}, or each "
                             "rank's size: Shard(dim, {sizes})"
                           : remedy_for(spec.placements()));
  }
}

/// Along Replicate axes the first rank's elements.
LocalTensor agreed_elements(const LocalTensor& local, const Spec& spec, const Tensor::Site& site) {
  const DeviceMesh mesh = spec.mesh();
  LocalTensor agreed = local;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (!spec.layout().is_replicate(static_cast<std::size_t>(axis)) || mesh.size(axis) == 1)
      continue;
    if (agreed.storage() == local.storage()) agreed = local.clone();
    mesh.group(axis).broadcast(agreed, 0, {}, site);
  }
  return agreed;
}

/// What run_check sends and receives: notes_of_all(), then agreed_elements().
EntryMovement rehearsed_check(const LocalTensor& local, const Spec& spec) {
  const DeviceMesh mesh = spec.mesh();
  const auto bytes_of = [](const LocalTensor& tensor) {
    return tensor.numel() * static_cast<std::int64_t>(tensors::item_size(tensor.dtype()));
  };
  EntryMovement entry{spec, "each rank's", {}, {}, {}};
  const std::int64_t others = mesh.size() - 1;
  if (others == 0) return entry;
  entry.steps.emplace_back("all_gather of shapes");
  const auto slowest = std::ranges::max_element(mesh.links(), {}, &LinkRate::latency);
  const std::int64_t note = bytes_of(PartNote{local.dtype(), {}, 0}.packed()) * others;
  entry.traffic = {note, note};
  entry.cost = {slowest->latency + static_cast<double>(note) / slowest->bytes_per_second, 1};
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    const auto index = static_cast<std::size_t>(axis);
    if (!spec.layout().is_replicate(index) || mesh.size(axis) == 1) continue;
    const std::int64_t all = bytes_of(local) * (mesh.size(axis) - 1);
    const LinkRate& link = mesh.links()[index];
    if (mesh.local_rank(axis) == 0)
      entry.traffic.sent += all;
    else
      entry.traffic.received += bytes_of(local);
    entry.cost += PlanCost{link.latency + static_cast<double>(all) / link.bytes_per_second, 1};
    entry.steps.push_back("broadcast along " + (mesh.axis_names().empty()
                                                    ? "axis " + std::to_string(axis)
                                                    : mesh.axis_names()[index]));
  }
  return entry;
}

void check_box(const LocalTensor& local, const Spec& spec) {
  const Shape expected = spec.local_box().shape;
  if (local.shape() == expected || spec.is_outside()) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the local tensor of rank " + std::to_string(spec.mesh().rank()) + " has the shape " +
                  tensors::shape_to_string(local.shape()),
              spec.to_string() + " gives it " + tensors::shape_to_string(expected),
              remedy_for(spec.placements()));
}

}  // namespace

Tensor Tensor::from_local(const Tensor& given, const DeviceMesh& mesh, const Placements& placements,
                          FromLocal options, Site site) {
  LocalTensor local = given.defined() ? given.plain_local() : LocalTensor();
  check_local(local, mesh);
  bool is_guessed = false;
  if (!options.has_shape) {
    GrownShape grown = grown_shape(local.shape(), local.dtype(), mesh, placements);
    options.shape = std::move(grown.shape);
    is_guessed = grown.is_guessed;
  }
  const Spec spec = make_spec(mesh, placements, options.shape, local.dtype(), options.shard_order);
  if (options.run_check && mesh.has_this_rank() && MoveObserver::rehearsing()) {
    const Cause cause("from_local", Cause::Wish::asked, site);
    MoveObserver::tell(rehearsed_check(local, spec));
  } else if (options.run_check && mesh.has_this_rank()) {
    const Cause cause("from_local", Cause::Wish::asked, site);
    const std::vector<PartNote> notes = notes_of_all(local, spec, site);
    check_placings(notes, spec);
    const PartNote& first = notes.front();
    const Shape shape =
        is_guessed ? grown_shape(first.shape, first.dtype, mesh, placements).shape : options.shape;
    check_parts(notes, make_spec(mesh, placements, shape, first.dtype, options.shard_order),
                is_guessed);
    local = agreed_elements(local, spec, site);
  }
  check_box(local, spec);
  if (is_guessed && !options.run_check) spec.body()->has_guessed_shape = true;
  Tensor made(spec, std::move(local));
  if (options.grad_placements.empty()) {
    return recorded("from_local", given, std::move(made),
                    [](const Tensor& gradient) { return gradient.to_local(); });
  }
  const Spec lies = spec_of_gradient("from_local", spec, options.grad_placements);
  return recorded("from_local", given, std::move(made), [lies](const Tensor& gradient) {
    return gradient.redistribute(lies.placements(), lies.shard_order()).to_local();
  });
}

}  // namespace dtrun::dtensor
