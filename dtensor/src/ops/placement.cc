// Between local tensors and distributed ones, and from placements to others. Gradients take the way
// back.
#include "autograd/step_node.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/layout/sharding_spec.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/ops.h"
#include "mesh/spec_table.h"
#include "move/asked_spec.h"
#include "move/cause.h"
#include "move/redistribute.h"
#include "ops/whole.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

/// The global shape whose even cut gives every rank the local one.
Shape grown_shape(Shape shape, const Spec& local_spec) {
  const DeviceMesh mesh = local_spec.mesh();
  for (std::size_t axis = 0; axis < local_spec.placements().size(); ++axis) {
    const Placement& placement = local_spec.placements()[axis];
    if (!placement.is_shard()) continue;
    shape[static_cast<std::size_t>(placement.dim())] *= mesh.size(static_cast<int>(axis));
  }
  return shape;
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

}  // namespace

Tensor Tensor::from_local(const Tensor& given, const DeviceMesh& mesh, Placements placements,
                          FromLocal options) {
  const LocalTensor local = given.defined() ? given.plain_local() : LocalTensor();
  check_local(local, mesh);
  const bool is_guessed = !options.has_shape;
  if (is_guessed) {
    options.shape =
        grown_shape(local.shape(), make_spec(mesh, placements, local.shape(), local.dtype()));
  }
  Spec spec = make_spec(mesh, std::move(placements), std::move(options.shape), local.dtype(),
                        std::move(options.shard_order));
  const Shape expected = spec.local_box().shape;
  if (local.shape() != expected && !spec.is_outside()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the local tensor of rank " + std::to_string(mesh.rank()) + " has the shape " +
                    tensors::shape_to_string(local.shape()),
                spec.to_string() + " gives it " + tensors::shape_to_string(expected),
                "cut as torch.chunk does: every chunk but the last ones has ceil(n / ranks)");
  }
  if (is_guessed) spec.body()->has_guessed_shape = true;
  return recorded("from_local", given, Tensor(std::move(spec), local),
                  [](const Tensor& gradient) { return gradient.to_local(); });
}

Tensor Tensor::to_local() const {
  if (!is_distributed()) return *this;
  return recorded("to_local", *this, Tensor(local()), [spec = spec()](const Tensor& gradient) {
    return from_local(
        gradient, spec.mesh(), without_partials(spec.placements()),
        {.shape = spec.shape(), .has_shape = true, .shard_order = spec.shard_order()});
  });
}

Tensor::Tensor(const Tensor& whole, const DeviceMesh& mesh, const ShardingSpec& sharding_spec,
               Site site) {
  const Shape shape = whole.defined() ? whole.shape() : Shape();
  const Layout layout = sharding_spec.layout(shape, mesh.shape());
  *this =
      distribute_tensor(whole, mesh, layout.placements(), {.shard_order = layout.order()}, site);
}

ShardingSpec Tensor::sharding_spec() const {
  placements();
  return ShardingSpec::of(spec().layout(), shape().size());
}

Tensor Tensor::full_tensor(Site site) const {
  const Cause cause("full_tensor", Cause::Wish::asked, site);
  return redistribute(Placements(placements().size(), Replicate())).to_local();
}

Tensor Tensor::redistribute(const Placements& placements, const ShardOrder& order,
                            Site site) const {
  const DeviceMesh mesh = device_mesh();
  Spec to = asked_spec("redistribute", site, mesh, placements, shape(), dtype(), order);
  if (to == spec()) return *this;
  const Cause cause("redistribute", Cause::Wish::asked, site);
  LocalTensor moved = redistribute_local(spec(), to, local());
  return recorded(
      "redistribute", *this, Tensor(std::move(to), std::move(moved)),
      [from = spec()](const Tensor& gradient) {
        return gradient.redistribute(without_partials(from.placements()), from.shard_order());
      },
      PartialGradient::passed_on);
}

Tensor Tensor::redistribute(const DeviceMesh& mesh, const Placements& placements,
                            const ShardOrder& order, Site site) const {
  if (device_mesh() == mesh) return redistribute(placements, order, site);
  throw Error(ErrorCode::kUnavailable,
              "redistribute of " + spec().to_string() + " to " + mesh.to_string(),
              "the tensor lies on " + device_mesh().to_string(), "");
}

LocalTensor whole_of(const Tensor& tensor) {
  const NoGrad no_grad;
  if (tensor.is_distributed() && tensor.spec().is_outside()) {
    throw Error(ErrorCode::kUsage, "the elements of a tensor were asked for outside of its mesh",
                "this rank is none of " + tensor.device_mesh().to_string(),
                "ask device_mesh().has_this_rank() first");
  }
  return tensor.is_distributed() ? tensor.full_tensor().local() : tensor.local();
}

double Tensor::item(Site site) const {
  const Cause cause("item", Cause::Wish::asked, site);
  return whole_of(*this).item();
}
std::vector<double> Tensor::to_vector(Site site) const {
  const Cause cause("to_vector", Cause::Wish::asked, site);
  return whole_of(*this).to_vector();
}
std::vector<std::int64_t> Tensor::to_vector_i64(Site site) const {
  const Cause cause("to_vector", Cause::Wish::asked, site);
  return whole_of(*this).to_vector_i64();
}

bool equal(const Tensor& a, const Tensor& b) {
  return tensors::equal(whole_of(a), whole_of(b));
}

}  // namespace dtrun::dtensor
