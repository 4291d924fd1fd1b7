#include "move/carried.h"

#include "dtrun/collectives/process_group.h"
#include "dtrun/dtensor/layout/box.h"
#include "dtrun/dtensor/plan/traffic.h"
#include "mesh/mesh_body.h"
#include "mesh/planned_group.h"

namespace dtrun::dtensor {
namespace {

using collectives::OpKind;
using collectives::PlannedCall;

/// Of each rank along the step's axis.
std::vector<std::int64_t> elements_along(const DeviceMesh& mesh, const tensors::Shape& shape,
                                         const Step& step, const Layout& layout) {
  std::vector<int> coordinate = mesh.coordinate();
  std::vector<std::int64_t> elements;
  for (int rank = 0; rank < mesh.size(step.axis); ++rank) {
    coordinate[static_cast<std::size_t>(step.axis)] = rank;
    elements.push_back(tensors::numel(local_box(shape, mesh.shape(), coordinate, layout).shape));
  }
  return elements;
}

/// Of an all_gather, reduce_scatter or all_reduce. In the others a rank sends each other one what
/// that needs.
PlannedCall call_of(const DeviceMesh& mesh, const tensors::Shape& shape, tensors::DType dtype,
                    const Step& step) {
  const auto own = static_cast<std::size_t>(mesh.coordinate()[static_cast<std::size_t>(step.axis)]);
  if (step.kind == StepKind::all_reduce) {
    const Box box = local_box(shape, mesh.shape(), mesh.coordinate(), step.before);
    const std::int64_t count = tensors::numel(box.shape);
    return {.kind = OpKind::all_reduce, .dtype = dtype, .inputs = {count}, .outputs = {count}};
  }
  const bool gathers = step.kind == StepKind::all_gather;
  const std::vector<std::int64_t> parts =
      elements_along(mesh, shape, step, gathers ? step.before : step.after);
  if (gathers)
    return {.kind = OpKind::all_gather, .dtype = dtype, .inputs = {parts[own]}, .outputs = parts};
  return {.kind = OpKind::reduce_scatter, .dtype = dtype, .inputs = parts, .outputs = {parts[own]}};
}

}  // namespace

std::optional<std::int64_t> bytes_to_carry(const DeviceMesh& mesh, const tensors::Shape& shape,
                                           tensors::DType dtype, const std::vector<Step>& steps) {
  // Of other devices each library sends in its own way.
  if (!mesh.has_this_rank() || mesh.body()->device_type != tensors::DeviceType::cpu)
    return std::nullopt;
  const auto item = static_cast<std::int64_t>(tensors::item_size(dtype));
  const std::vector<Traffic> traffic =
      plan_traffic(shape, mesh.shape(), steps, mesh.coordinate(), item);
  // On one machine, which a planned mesh is thought to be, of an all_reduce only other bytes travel
  // than are needed: the parts of thousands of ranks need not be known.
  const bool is_planned_mesh = is_planned(mesh.body()->root->parent);
  const auto may_differ = [&](StepKind kind) {
    return kind == StepKind::all_reduce ||
           (!is_planned_mesh && (kind == StepKind::all_gather || kind == StepKind::reduce_scatter));
  };
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!may_differ(steps[i].kind)) {
      bytes += traffic[i].sent;
      continue;
    }
    MeshLine& line = *mesh.body()->lines[static_cast<std::size_t>(steps[i].axis)];
    const std::optional<std::int64_t> sent =
        line.bytes_to_send(call_of(mesh, shape, dtype, steps[i]));
    if (!sent) return std::nullopt;
    bytes += *sent;
  }
  return bytes;
}

}  // namespace dtrun::dtensor
