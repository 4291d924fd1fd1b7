#include "dtrun/dtensor/parallel/zero_redundancy_optimizer.h"

#include <map>
#include <string>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/tensor/ops.h"
#include "move/span.h"
#include "move/told_calls.h"
#include "parallel/flat_layout.h"
#include "parallel/one_axis.h"
#include "parallel/sharded_spec.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using tensors::LocalTensor;
using tensors::Shape;

[[noreturn]] void refuse_zero(const std::string& what, const std::string& why,
                              const std::string& remedy) {
  throw Error(ErrorCode::kInvalidArgument, "ZeroRedundancyOptimizer " + what, why, remedy);
}

/// A parameter by its number, for it has no name here.
std::string number_of(std::size_t index, const Tensor& parameter) {
  return "of parameter " + std::to_string(index) + ", " +
         std::string(tensors::dtype_short_name(parameter.dtype())) +
         tensors::shape_to_string(parameter.shape());
}

void check_parameters(const Tensors& parameters, const ProcessGroup& group) {
  if (parameters.empty()) refuse_zero("of no parameters", "", "model->parameters()");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& parameter = parameters[i];
    if (parameter.dim() == 0)
      refuse_zero(number_of(i, parameter), "parts are rows, and it has no dims", "a shape of {1}");
    if (parameter.is_distributed() && shares_ranks(parameter, group))
      refuse_zero(number_of(i, parameter),
                  "it is distributed over the ranks of this axis, " + parameter.spec().to_string(),
                  "an optimizer of its own kind: states lie where parameters lie");
  }
}

/// This rank's rows of what it holds.
LocalTensor own_rows(const LocalTensor& whole, const ProcessGroup& group) {
  const Chunk rows = chunk_of(whole.size(0), group.size(), group.rank());
  return whole.narrow(0, rows.offset, rows.size);
}

}  // namespace

/// Parameters whose rows are gathered together.
struct ZeroRedundancyOptimizer::Block {
  std::vector<std::size_t> parameters;
  FlatLayout layout;
};

ZeroRedundancyOptimizer::~ZeroRedundancyOptimizer() = default;

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(Tensors parameters, const DeviceMesh& mesh,
                                                 const Make& make)
    : group_(group_of_one_axis("ZeroRedundancyOptimizer", mesh)),
      parameters_(std::move(parameters)) {
  check_parameters(parameters_, group_);
  std::map<std::pair<DType, tensors::DeviceType>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i];
    const Tensor part(sharded_spec(mesh, parameter.spec(), parameter.shape(), parameter.dtype()),
                      own_rows(parameter.local(), group_));
    parts_.push_back(part.requires_grad_(parameter.requires_grad()));
    alike[{parameter.dtype(), parameter.device().type}].push_back(i);
  }
  for (auto& [kind, list] : alike) {
    std::vector<Shape> shapes;
    for (const std::size_t i : list) shapes.push_back(parameters_[i].local().shape());
    blocks_.push_back({std::move(list), FlatLayout(std::move(shapes), group_.size())});
  }
  inner_ = make(parts_);
  if (inner_ == nullptr) refuse_zero("without an optimizer", "the function made none", "");
}

void ZeroRedundancyOptimizer::follow_parameters() {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const LocalTensor rows = own_rows(parameters_[i].local(), group_);
    if (rows.data() == parts_[i].local().data()) continue;
    // By what all ranks see alike: all of them refuse, or none.
    if (parameters_[i].shape() != parts_[i].shape() || rows.dtype() != parts_[i].dtype()) {
      throw Error(ErrorCode::kUsage,
                  "ZeroRedundancyOptimizer::step(): the rows " + number_of(i, parameters_[i]) +
                      ", which has changed",
                  "it was " + std::string(tensors::dtype_short_name(parts_[i].dtype())) +
                      tensors::shape_to_string(parts_[i].shape()),
                  "make the optimizer after parallelize(), to() and the like");
    }
    parts_[i].set_grad({});
    parts_[i].set_data(Tensor(parts_[i].spec(), rows));
  }
}

void ZeroRedundancyOptimizer::step(Tensor::Site site) {
  const NoGrad no_grad;
  follow_parameters();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!parts_[i].requires_grad()) continue;
    const Tensor gradient = parameters_[i].grad();
    parts_[i].set_grad(gradient.defined()
                           ? Tensor(parts_[i].spec(), own_rows(gradient.local(), group_))
                           : Tensor());
  }
  inner_->step(site);
  inner_->zero_grad();
  if (group_.size() == 1) return;
  const Span span(Span::Kind::step, "gather of parameters");
  for (const Block& block : blocks_) {
    std::vector<LocalTensor> received;
    const tensors::TensorOptions options{parameters_[block.parameters[0]].dtype(),
                                         parameters_[block.parameters[0]].device()};
    for (int rank = 0; rank < group_.size(); ++rank)
      received.push_back(tensors::empty({block.layout.part_elements(rank)}, options));
    const LocalTensor sent = received[static_cast<std::size_t>(group_.rank())].clone();
    for (std::size_t k = 0; k < block.parameters.size(); ++k)
      block.layout.part(sent, k, group_.rank()).copy_(parts_[block.parameters[k]].local());
    const ToldCalls told("the optimizer's step", site);
    group_.all_gather(received, sent, {}, site);
    for (std::size_t k = 0; k < block.parameters.size(); ++k) {
      const LocalTensor& whole = parameters_[block.parameters[k]].local();
      whole.storage()->count_write();
      for (int rank = 0; rank < group_.size(); ++rank) {
        if (rank == group_.rank()) continue;
        block.layout.rows(whole, k, rank)
            .copy_(block.layout.part(received[static_cast<std::size_t>(rank)], k, rank));
      }
    }
  }
}

void ZeroRedundancyOptimizer::zero_grad() const {
  for (const Tensor& parameter : parameters_) {
    if (parameter.requires_grad()) parameter.set_grad({});
  }
}

}  // namespace dtrun::dtensor
