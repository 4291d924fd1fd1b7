#include "move/exchange.h"

#include "dtrun/tensor/ops.h"
#include "mesh/mesh_body.h"

namespace dtrun::dtensor {
namespace {

using tensors::LocalTensor;

/// The coordinates of the ranks that differ along `axes`, in the order of their group: the last
/// axis fastest.
std::vector<std::vector<int>> coordinates_along(const DeviceMesh& mesh,
                                                const std::vector<int>& axes) {
  std::vector<std::vector<int>> coordinates = {mesh.coordinate()};
  for (const int axis : axes) {
    std::vector<std::vector<int>> more;
    for (const std::vector<int>& known : coordinates) {
      for (int i = 0; i < mesh.size(axis); ++i) {
        more.push_back(known);
        more.back()[static_cast<std::size_t>(axis)] = i;
      }
    }
    coordinates = std::move(more);
  }
  return coordinates;
}

}  // namespace

LocalTensor shared_part(const LocalTensor& tensor, const Box& box, const Box& wanted) {
  const Box common = intersection(box, wanted);
  LocalTensor part = tensor;
  for (std::size_t dim = 0; dim < common.shape.size(); ++dim) {
    if (common.shape[dim] == box.shape[dim]) continue;  // the whole dim: no view is needed
    const std::int64_t start = common.shape[dim] == 0 ? 0 : common.offsets[dim] - box.offsets[dim];
    part = part.narrow(static_cast<int>(dim), start, common.shape[dim]);
  }
  return part;
}

StartedStage start_exchange(const PlanSite& site, const Step& step, const LocalTensor& local,
                            const collectives::CallOptions& options, const base::CallSite& call) {
  const DeviceMesh& mesh = site.mesh;
  const auto box_of = [&](const std::vector<int>& coordinate, const Layout& layout) {
    return local_box(site.global_shape, mesh.shape(), coordinate, layout);
  };
  const Box before = box_of(mesh.coordinate(), step.before);
  const Box after = box_of(mesh.coordinate(), step.after);
  const std::vector<int> axes = step.axes();
  LocalTensor result =
      tensors::empty(after.shape, {.dtype = local.dtype(), .device = local.device()});
  std::vector<LocalTensor> inputs, outputs;
  for (const std::vector<int>& coordinate : coordinates_along(mesh, axes)) {
    inputs.push_back(shared_part(local, before, box_of(coordinate, step.after)));
    outputs.push_back(shared_part(result, after, box_of(coordinate, step.before)));
  }
  return {result, group_along(*mesh.body(), axes).all_to_all(outputs, inputs, options, call)};
}

}  // namespace dtrun::dtensor
