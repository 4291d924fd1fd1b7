#include "parallel/sharded_block.h"

#include <utility>

#include "autograd/deferred.h"
#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/shapes_only.h"
#include "move/span.h"
#include "move/told_calls.h"
#include "parallel/sharded_spec.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;
using collectives::ReduceOp;
using tensors::LocalTensor;
using tensors::Shape;

namespace {

FlatLayout layout_of(const std::vector<ShardedParameter>& parameters, int ranks) {
  std::vector<Shape> shapes;
  std::vector<int> dims;
  for (const ShardedParameter& each : parameters) {
    shapes.push_back(each.whole_local);
    dims.push_back(each.dim);
  }
  return {std::move(shapes), ranks, std::move(dims)};
}

}  // namespace

ShardedBlock::ShardedBlock(const std::string& unit, std::vector<ShardedParameter> parameters,
                           ShardAxes axes, const MixedPrecision& precision,
                           const Tensor::Site& site)
    : unshard_("unshard" + (unit.empty() ? "" : " of " + unit)),
      reduce_("gradients" + (unit.empty() ? "" : " of " + unit)),
      site_(site),
      parameters_(std::move(parameters)),
      axes_(std::move(axes)),
      layout_(layout_of(parameters_, axes_.shard().size())) {
  const Device device = parameters_[0].parameter.device();
  const DType dtype = parameters_[0].parameter.dtype();
  // Integers and truth values stay what they are; nobody computes gradients of them.
  if (tensors::is_floating_point(dtype)) {
    whole_.dtype = precision.param.value_or(dtype);
    reduce_dtype_ = precision.reduce.value_or(whole_.dtype);
  } else {
    whole_.dtype = reduce_dtype_ = dtype;
  }
  parts_ = tensors::empty({layout_.part_elements(rank())}, {dtype, device});
  const std::int64_t elements = is_cut() ? layout_.whole_elements() : parts_.numel();
  // Parameters that are shown as they are kept have the versions of what is kept: a graph that
  // saved them does not go on with others.
  whole_.storage = is_shown_as_kept() ? parts_.storage()
                                      : tensors::Storage::wrap(nullptr,
                                                               static_cast<std::size_t>(elements) *
                                                                   tensors::item_size(whole_.dtype),
                                                               device, [] {});
  const NoGrad no_grad;
  const ToldCalls told("fully_shard", site);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i].parameter;
    const LocalTensor part = layout_.part(parts_, i, rank());
    if (Deferred::is(parameter)) {
      Deferred::fill(parameter, Tensor(spec_of(parameters_[i]), part), axes_.mesh.group(), site);
      continue;
    }
    axes_.mesh.group().broadcast(parameter.local(), 0, {}, site);
    part.copy_(layout_.rows(parameter.local(), i, rank()));
    if (parameter.requires_grad()) parameter.set_grad({});
    parameter.set_data(Tensor(spec_of(parameters_[i]), part));
  }
}

Spec ShardedBlock::spec_of(const ShardedParameter& each) const {
  if (each.dim == FlatLayout::kNoDim) {
    return replicated_spec(axes_.mesh, each.whole_spec, each.parameter.shape(),
                           each.parameter.dtype());
  }
  return sharded_spec(axes_.mesh, each.whole_spec, each.parameter.shape(), each.parameter.dtype(),
                      each.dim);
}

void ShardedBlock::collect(const Tensors& sharded) {
  const tensors::ShapesOnly computed(false);  // parameters in a pass without numbers, too
  for (std::size_t i = 0; i < sharded.size(); ++i) {
    const LocalTensor part = layout_.part(parts_, i, rank());
    const LocalTensor& its = sharded[i].local();
    if (its.numel() == 0 || its.data() == part.data()) continue;
    if (its.dtype() != part.dtype() || its.shape() != part.shape()) {
      throw Error(ErrorCode::kUsage,
                  "fully_shard: \"" + parameters_[i].name + "\" has become " +
                      std::string(tensors::dtype_short_name(its.dtype())) +
                      tensors::shape_to_string(its.shape()) + " on this rank",
                  "it was sharded as " + std::string(tensors::dtype_short_name(part.dtype())) +
                      tensors::shape_to_string(part.shape()),
                  "change dtype and shape before fully_shard()");
    }
    parts_.storage()->count_write();
    part.copy_(its);
    sharded[i].set_data(Tensor(sharded[i].spec(), part));
  }
}

void ShardedBlock::start_gather(const Tensors& sharded) {
  if (is_whole() || gather_) return;
  collect(sharded);
  if (is_shown_as_kept()) return;
  // Graphs that saved the whole numbers of before must not go on with others.
  const std::uint32_t version = parts_.storage()->version();
  if (whole_.numbers_of != version) whole_.storage->count_write();
  whole_.numbers_of = version;
  if (!is_cut()) {
    hold_whole(parts_.to(whole_.dtype));
    return;
  }

  Gather gather;
  gather.sent = parts_.dtype() == whole_.dtype ? parts_ : parts_.to(whole_.dtype);
  for (int from = 0; from < ranks(); ++from) {
    gather.received.push_back(
        tensors::empty({layout_.part_elements(from)}, {whole_.dtype, parts_.device()}));
  }
  const ToldCalls told(unshard_, site_);
  gather.work = axes_.shard().all_gather(gather.received, gather.sent, {.async = true}, site_);
  gather_ = std::move(gather);
}

void ShardedBlock::finish_gather() {
  if (!gather_) return;
  const Gather gather = *std::exchange(gather_, std::nullopt);
  {
    const Span span(Span::Kind::wait, "wait for parameters");
    gather.work.wait();
  }
  const LocalTensor memory =
      tensors::empty({layout_.whole_elements()}, {whole_.dtype, parts_.device()});
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const LocalTensor whole = layout_.whole(memory, i);
    for (int from = 0; from < ranks(); ++from) {
      layout_.rows(whole, i, from)
          .copy_(layout_.part(gather.received[static_cast<std::size_t>(from)], i, from));
    }
  }
  hold_whole(memory);
}

void ShardedBlock::hold_whole(const LocalTensor& memory) {
  whole_.memory = memory;
  whole_.storage->point_to(memory.data());
}

void ShardedBlock::give_back() {
  if (is_shown_as_kept()) return;
  gather_.reset();
  whole_.memory = {};
  whole_.storage->point_to(nullptr);
}

Tensor ShardedBlock::whole(std::size_t parameter) const {
  const std::int64_t elements = is_cut() ? layout_.whole_elements() : parts_.numel();
  const LocalTensor block(whole_.storage, whole_.dtype, {elements}, {1});
  const LocalTensor local =
      is_cut() ? layout_.whole(block, parameter) : layout_.part(block, parameter, rank());
  const Spec& spec = parameters_[parameter].whole_spec;
  if (!spec) return local;
  return Tensor(
      make_spec(spec.mesh(), spec.placements(), spec.shape(), whole_.dtype, spec.shard_order()),
      local);
}

ShardedBlock::Reduction ShardedBlock::start_reduce(const Tensors& gradients) const {
  const auto count = static_cast<std::int64_t>(parameters_.size());
  Reduction reduction;
  const tensors::TensorOptions options{reduce_dtype_, parts_.device()};
  reduction.numbers = tensors::empty({layout_.part_elements(rank()) + count}, options);
  if (!is_cut()) {
    write_gradients(reduction.numbers, gradients, rank());
    const ToldCalls told(reduce_, site_);
    reduction.work =
        axes_.mesh.group().all_reduce(reduction.numbers, ReduceOp::avg, {.async = true}, site_);
    return reduction;
  }
  std::int64_t elements = 0;
  for (int to = 0; to < ranks(); ++to) elements += layout_.part_elements(to) + count;
  reduction.sent = tensors::empty({elements}, options);
  std::vector<LocalTensor> by_rank;
  std::int64_t offset = 0;
  for (int to = 0; to < ranks(); ++to) {
    const std::int64_t size = layout_.part_elements(to) + count;
    write_gradients(by_rank.emplace_back(reduction.sent.narrow(0, offset, size)), gradients, to);
    offset += size;
  }
  const ToldCalls told(reduce_, site_);
  reduction.work = axes_.shard().reduce_scatter(reduction.numbers, by_rank, ReduceOp::avg,
                                                {.async = true}, site_);
  return reduction;
}

void ShardedBlock::write_gradients(const LocalTensor& to, const Tensors& gradients,
                                   int rank) const {
  std::int64_t share = layout_.part_elements(rank);
  for (std::size_t i = 0; i < parameters_.size(); ++i, ++share) {
    const LocalTensor part = layout_.part(to, i, rank);
    const bool is_there = gradients[i].defined();
    if (is_there) {
      part.copy_(layout_.rows(gradients[i].local(), i, rank));
    } else {
      part.fill_(0);
    }
    to.select(0, share).fill_(is_there ? 1 : 0);
  }
}

void ShardedBlock::start_replicas(Reduction& reduction) const {
  const Span span(Span::Kind::wait, "wait for gradients");
  reduction.work.wait();
  reduction.sent = {};
  reduction.work = {};
  // What is not cut has been averaged over both axes.
  if (!axes_.is_hybrid() || !is_cut()) return;
  const ToldCalls told(reduce_, site_);
  reduction.work =
      axes_.replicate().all_reduce(reduction.numbers, ReduceOp::avg, {.async = true}, site_);
}

Tensors ShardedBlock::finish_reduce(const Reduction& reduction, const Tensors& sharded) const {
  {
    const Span span(Span::Kind::wait, "wait for gradients");
    reduction.work.wait();
  }
  const auto count = static_cast<std::int64_t>(parameters_.size());
  const std::int64_t elements = reduction.numbers.numel() - count;
  const std::vector<double> shares = reduction.numbers.narrow(0, elements, count).to_vector();
  Tensors gradients(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (shares[i] == 0) continue;
    const LocalTensor part = layout_.part(reduction.numbers, i, rank());
    gradients[i] =
        Tensor(sharded[i].spec(), part.dtype() == parts_.dtype() ? part : part.to(parts_.dtype()));
  }
  return gradients;
}

}  // namespace dtrun::dtensor
