// From distributed tensors to local ones, and from placements to others. Gradients take the way
// back.
#include <atomic>
#include <cstdint>
#include <memory>

#include "autograd/step_node.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/autograd/pending_tensor.h"
#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/layout/sharding_spec.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/shapes_only.h"
#include "mesh/spare_owners.h"
#include "mesh/spec_table.h"
#include "move/asked_spec.h"
#include "move/cause.h"
#include "move/cross_mesh.h"
#include "move/kept_crossing.h"
#include "move/move_observer.h"
#include "move/redistribute.h"
#include "move/repeated_move.h"
#include "ops/gradient_layout.h"
#include "ops/whole.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;

Spec spec_of_gradient(std::string_view call, const Spec& spec, const Placements& placements) {
  const Placements& held = spec.placements();
  // Of the same cuts, so that the order means the same; else make_spec() would say what is wrong.
  const auto cuts_alike = [](const Placement& one, const Placement& other) {
    return one.is_shard() || other.is_shard() ? one == other : true;
  };
  const Spec lies = make_spec(spec.mesh(), placements, spec.shape(), spec.dtype());
  if (std::ranges::equal(lies.placements(), held, cuts_alike))
    return make_spec(spec.mesh(), lies.placements(), spec.shape(), spec.dtype(),
                     spec.shard_order());
  throw Error(ErrorCode::kInvalidArgument,
              std::string(call) + " of " + spec.to_string() + " with the grad_placements " +
                  placements_to_string(placements),
              "a rank's gradient has the elements that its part has",
              "the tensor's Shard(...) where it has one; elsewhere Replicate() or Partial()");
}

Tensor local_with_gradient(std::string_view call, const Tensor& tensor,
                           const Placements& grad_placements) {
  const Spec lies = spec_of_gradient(call, tensor.spec(), grad_placements);
  return recorded(call, tensor, Tensor(tensor.local()), [lies](const Tensor& gradient) {
    return Tensor::from_local(
        gradient, lies.mesh(), lies.placements(),
        {.shape = lies.shape(), .has_shape = true, .shard_order = lies.shard_order()});
  });
}

Tensor Tensor::to_local() const {
  if (!is_distributed()) return *this;
  return recorded("to_local", *this, Tensor(local()), [spec = spec()](const Tensor& gradient) {
    return from_local(
        gradient, spec.mesh(), without_partials(spec.placements()),
        {.shape = spec.shape(), .has_shape = true, .shard_order = spec.shard_order()});
  });
}

Tensor Tensor::to_local(const Placements& grad_placements) const {
  return is_distributed() ? local_with_gradient("to_local", *this, grad_placements) : *this;
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

Tensor Tensor::full_tensor(const Placements& grad_placements, Site site) const {
  const Cause cause("full_tensor", Cause::Wish::asked, site);
  const Tensor whole = redistribute(Placements(placements().size(), Replicate()));
  return local_with_gradient("full_tensor", whole, grad_placements);
}

namespace {

/// The gradient takes the way back.
StepNode::Backward way_back(const Tensor& x) {
  return [from = x.spec()](const Tensor& gradient) {
    return gradient.redistribute(from.mesh(), without_partials(from.placements()),
                                 from.shard_order());
  };
}

/// What has arrived of x, in the graph.
[[gnu::always_inline]] inline Tensor arrived(const Tensor& x, Tensor tensor) {
  if (!wants_step(x)) return tensor;
  return recorded("redistribute", x, std::move(tensor), way_back(x), PartialGradient::passed_on);
}

/// What is to arrive of x. Its place in the graph is that of the call: before it has arrived the
/// program may write to x, or turn gradients on or off.
class Arrival {
 public:
  Arrival(const Tensor& x, Spec to)
      : x_(x),
        to_(std::move(to)),
        step_(step_from("redistribute_async", x, way_back(x), PartialGradient::passed_on)),
        elements_(x.spec(), x.local()) {
    if (step_.get() != nullptr) Graph::mark_view(elements_, x);
  }

  Tensor operator()(LocalTensor local) const {
    Tensor tensor(to_, std::move(local));
    if (step_.get() == nullptr) return tensor;
    Graph::set_producer(tensor, step_);
    if (tensor.local().storage() != x_.local().storage()) return tensor;
    Graph::check_not_stale(elements_);
    Graph::mark_view(tensor, x_);
    return tensor;
  }

 private:
  Tensor x_;
  Spec to_;
  base::Counted<Node> step_;
  Tensor elements_;  ///< x's, as a view that is made at the call
};

}  // namespace

const AskedMove* Tensor::repeated_move(std::span<const Placement> placements) const {
  return RepeatedMove::find(body().repeated.load(std::memory_order_acquire), spec(), placements);
}

Tensor Tensor::moved_by(const AskedMove& move, Site site) const {
  if (move.to.body() == spec().body()) return *this;  // equal specs of one mesh are one
  const Cause cause("redistribute", Cause::Wish::asked, site);
  LocalTensor moved = run_move(spec(), move, local());
  if (!move.direct) return arrived(*this, Tensor(move.to, std::move(moved)));
  // Without another look at shape and dtype.
  Tensor tensor;
  tensor.body_ = base::Counted<Body>(new Body(std::move(moved), SpareOwners::take(move.to)));
  return arrived(*this, std::move(tensor));
}

const KeptCrossing* Tensor::repeated_move(const DeviceMesh& mesh,
                                          std::span<const Placement> placements) const {
  return RepeatedMove::find(body().repeated.load(std::memory_order_acquire), spec(), mesh,
                            placements);
}

// Inlined: a call would take as long as a part of a short message.
[[gnu::always_inline]] inline Tensor Tensor::moved_by(const KeptCrossing& kept, Site site) const {
  const Cause cause("redistribute", Cause::Wish::asked, site);
  LocalTensor moved = redistribute_again(spec(), kept, local());
  // Without another look at shape and dtype.
  Tensor tensor;
  tensor.body_ = base::Counted<Body>(new Body(std::move(moved), SpareOwners::take(kept.to())));
  return arrived(*this, std::move(tensor));
}

Tensor Tensor::redistribute(const Placements& placements, const ShardOrder& order,
                            Site site) const {
  this->placements();  // which a local tensor refuses
  if (!order.empty())
    return moved_by(asked_move("redistribute", site, spec(), placements, order), site);
  if (const AskedMove* const known = repeated_move(placements)) return moved_by(*known, site);
  const AskedMove move = asked_move("redistribute", site, spec(), placements, order);
  note_move(placements, move);
  return moved_by(move, site);
}

Tensor Tensor::redistribute(std::initializer_list<Placement> placements, const ShardOrder& order,
                            Site site) const {
  const AskedMove* const known = order.empty() ? repeated_move(placements) : nullptr;
  if (known != nullptr) return moved_by(*known, site);
  return redistribute(Placements(placements), order, site);
}

namespace {

/// Puts the target's mark before the others: the last four are kept. @return whether it was among
/// them
bool note_target(std::atomic<std::uint64_t>& marks, const Spec& to) {
  constexpr int kBits = 16;
  const std::uint64_t mark = to.body()->mark;
  const std::uint64_t known = marks.load(std::memory_order_relaxed);
  marks.store(known << kBits | mark, std::memory_order_relaxed);
  for (std::uint64_t left = known; left != 0; left >>= kBits)
    if ((left & 0xffff) == mark) return true;
  return false;
}

}  // namespace

template <typename Move>
void Tensor::note_move(const Placements& placements, const Move& move) const {
  const RepeatedMove* kept = body().repeated.load(std::memory_order_acquire);
  if (RepeatedMove::are_enough(kept) || MoveObserver::rehearsing()) return;
  if (!note_target(body().moved_to, move.to)) return;
  auto made = std::make_unique<const RepeatedMove>(RepeatedMove::Origin{spec(), local()},
                                                   placements, move, kept);
  // Where another thread has kept one meanwhile, this one may come again.
  if (body().repeated.compare_exchange_strong(kept, made.get(), std::memory_order_acq_rel)) {
    made.release();
  }
}

Tensor Tensor::redistribute(const DeviceMesh& mesh, const Placements& placements,
                            const ShardOrder& order, Site site) const {
  if (order.empty()) {
    if (const KeptCrossing* const known = repeated_move(mesh, placements))
      return moved_by(*known, site);
  }
  if (device_mesh() == mesh) return redistribute(placements, order, site);
  AskedCrossing asked = asked_crossing("redistribute", site, spec(), mesh, placements, order);
  if (order.empty() && KeptCrossing::can_keep(asked)) note_move(placements, asked);
  const Cause cause("redistribute", Cause::Wish::asked, site);
  LocalTensor moved = redistribute_across(spec(), asked, local());
  return arrived(*this, Tensor(std::move(asked.to), std::move(moved)));
}

Tensor Tensor::redistribute(const DeviceMesh& mesh, std::initializer_list<Placement> placements,
                            const ShardOrder& order, Site site) const {
  // Not by repeated_move(): a call would take as long as a part of a short message.
  const KeptCrossing* const known =
      !order.empty() ? nullptr
                     : RepeatedMove::find(body().repeated.load(std::memory_order_acquire), spec(),
                                          mesh, placements);
  if (known != nullptr) return moved_by(*known, site);
  return redistribute(mesh, Placements(placements), order, site);
}

PendingTensor Tensor::redistribute_async(const Placements& placements, const ShardOrder& order,
                                         Site site) const {
  return redistribute_async(device_mesh(), placements, order, site);
}

PendingTensor Tensor::redistribute_async(const DeviceMesh& mesh, const Placements& placements,
                                         const ShardOrder& order, Site site) const {
  const bool goes_across = !(device_mesh() == mesh);
  const Spec to = asked_spec("redistribute_async", site, mesh, placements, shape(), dtype(), order);
  const Cause cause("redistribute_async", Cause::Wish::asked, site);
  if (to == spec()) return {PendingMove({}, local()), [x = *this](LocalTensor) { return x; }, site};
  return {goes_across ? start_across(spec(), to, local()) : start_redistribute(spec(), to, local()),
          Arrival(*this, to), site};
}

LocalTensor whole_of(const Tensor& tensor, std::string_view call) {
  if (tensors::ShapesOnly::stands()) {
    throw Error(
        ErrorCode::kUsage, std::string(call) + "() in a pass without numbers",
        "predict_step() computes shapes and memory; a tensor's elements are undefined there",
        "read numbers after the pass, or where ShapesOnly::stands() is false");
  }
  const NoGrad no_grad;
  if (tensor.is_distributed() && tensor.spec().is_outside()) {
    throw Error(ErrorCode::kUsage, "the elements of a tensor were asked for outside of its mesh",
                "this rank is none of " + tensor.device_mesh().to_string(),
                "ask device_mesh().has_this_rank() first");
  }
  return tensor.is_distributed() ? tensor.full_tensor().local() : tensor.local();
}

namespace {

/// For the caller to read.
LocalTensor numbers_of(const Tensor& tensor, const char* method, Tensor::Site site) {
  const Cause cause(method, Cause::Wish::asked, site);
  return whole_of(tensor, method);
}

}  // namespace

double Tensor::item(Site site) const {
  return numbers_of(*this, "item", site).item();
}
std::vector<double> Tensor::to_vector(Site site) const {
  return numbers_of(*this, "to_vector", site).to_vector();
}
std::vector<std::int64_t> Tensor::to_vector_i64(Site site) const {
  return numbers_of(*this, "to_vector", site).to_vector_i64();
}

bool equal(const Tensor& a, const Tensor& b, Tensor::Site site) {
  const Cause cause("equal", Cause::Wish::asked, site);
  return tensors::equal(whole_of(a, "equal"), whole_of(b, "equal"));
}

}  // namespace dtrun::dtensor
