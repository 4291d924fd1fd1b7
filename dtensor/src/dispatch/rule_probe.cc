#include "dispatch/rule_probe.h"

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {

using tensors::LocalTensor;

namespace {

thread_local RuleProbe* current_probe = nullptr;

}  // namespace

RuleProbe::RuleProbe(std::optional<Forced> forced) : forced_(forced), before_(current_probe) {
  current_probe = this;
}

RuleProbe::~RuleProbe() {
  current_probe = before_;
}

RuleProbe* RuleProbe::current() {
  return current_probe;
}

std::optional<sharding::AxisRule> RuleProbe::note(std::string_view op, Metas inputs,
                                                  const std::vector<sharding::AxisRule>& rules) {
  const std::size_t number = calls_.size();
  calls_.push_back({std::string(op), {inputs.begin(), inputs.end()}, rules});
  if (!forced_ || forced_->call != number) return std::nullopt;
  return forced_->rule;
}

LocalTensor part_of(const LocalTensor& whole, ReduceOp op, int rank, int ranks,
                    std::size_t operand) {
  if (ranks == 1) return whole;
  const LocalTensor numbers = tensors::arange(whole.numel(), {tensors::DType::i64, whole.device()});
  const LocalTensor is_mine =
      tensors::eq(
          tensors::remainder(tensors::add(numbers, static_cast<std::int64_t>(operand)), ranks),
          rank)
          .view(whole.shape());
  if (whole.dtype() == tensors::DType::boolean) {
    // Of bools a sum and a maximum are "or", a product and a minimum "and".
    const bool neutral = op == ReduceOp::product || op == ReduceOp::min;
    return tensors::where(is_mine, whole,
                          tensors::full(whole.shape(), neutral ? 1 : 0, {whole.dtype()}));
  }
  switch (op) {
    case ReduceOp::sum:  // 3 x - 2 x, and nothing from the others
      return tensors::mul(whole, rank == 0 ? 3 : rank == 1 ? -2 : 0);
    case ReduceOp::avg:
      return tensors::mul(whole, rank == 0 ? 1 + ranks : rank == 1 ? 1 - ranks : 1);
    case ReduceOp::product:  // the powers of 2 are exact
      return rank > 1 || !tensors::is_floating_point(whole.dtype())
                 ? (rank == 0 ? whole : tensors::full(whole.shape(), 1, {whole.dtype()}))
                 : (rank == 0 ? tensors::mul(whole, 2)
                              : tensors::full(whole.shape(), 0.5, {whole.dtype()}));
    case ReduceOp::max:
      return tensors::where(is_mine, whole, tensors::sub(whole, 1)).to(whole.dtype());
    case ReduceOp::min:
      return tensors::where(is_mine, whole, tensors::add(whole, 1)).to(whole.dtype());
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::premul_sum:  // no Partial has it
      break;
  }
  throw base::Error(base::ErrorCode::kUnavailable,
                    "a rule on parts of " + std::string(collectives::reduce_op_name(op)),
                    "no tensor can be made of such parts",
                    "a rule with P(sum), P(avg), P(max), P(min) or P(product)");
}

}  // namespace dtrun::dtensor
