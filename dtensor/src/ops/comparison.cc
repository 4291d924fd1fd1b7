// Comparisons, logic, and what chooses between two tensors.
#include "dtrun/base/error.h"
#include "ops/elementwise.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {
namespace {

Meta compared(Metas in, const None&) {
  return {tensors::broadcast_shapes(in[0].shape, in[1].shape), DType::boolean};
}

struct Against {
  Scalar number;
};
template <LocalTensor (*kKernel)(const tensors::Operand&, const tensors::Operand&)>
LocalTensor run_against(Locals in, const None&, const Against& v, const Site&) {
  return kKernel(in[0], v.number);
}

template <LocalTensor (*kKernel)(const tensors::Operand&, const tensors::Operand&)>
constexpr Op<> comparison(std::string_view name) {
  return {.name = name, .meta = compared, .rules = elementwise_rules, .local = run_binary<kKernel>};
}
template <LocalTensor (*kKernel)(const tensors::Operand&, const tensors::Operand&)>
constexpr Op<None, Against> comparison_with(std::string_view name) {
  return {.name = name,
          .meta = boolean_dtype,
          .rules = elementwise_rules,
          .local = run_against<kKernel>};
}

constexpr Op<> kEq = comparison<tensors::eq>("eq");
constexpr Op<> kNe = comparison<tensors::ne>("ne");
constexpr Op<> kLt = comparison<tensors::lt>("lt");
constexpr Op<> kLe = comparison<tensors::le>("le");
constexpr Op<> kGt = comparison<tensors::gt>("gt");
constexpr Op<> kGe = comparison<tensors::ge>("ge");
constexpr Op<None, Against> kEqNumber = comparison_with<tensors::eq>("eq");
constexpr Op<None, Against> kNeNumber = comparison_with<tensors::ne>("ne");
constexpr Op<None, Against> kLtNumber = comparison_with<tensors::lt>("lt");
constexpr Op<None, Against> kLeNumber = comparison_with<tensors::le>("le");
constexpr Op<None, Against> kGtNumber = comparison_with<tensors::gt>("gt");
constexpr Op<None, Against> kGeNumber = comparison_with<tensors::ge>("ge");
constexpr Op<> kAnd = comparison<tensors::logical_and>("logical_and");
constexpr Op<> kOr = comparison<tensors::logical_or>("logical_or");
constexpr Op<> kXor = comparison<tensors::logical_xor>("logical_xor");

Meta chosen(Metas in, const None&) {
  if (in[0].dtype != DType::boolean) {
    throw base::Error(
        base::ErrorCode::kInvalidArgument,
        "where with a " + std::string(tensors::dtype_name(in[0].dtype)) + " condition",
        "a condition is bool", "ne(condition, 0)");
  }
  return {
      tensors::broadcast_shapes(in[0].shape, tensors::broadcast_shapes(in[1].shape, in[2].shape)),
      tensors::result_type(typed(in[1]), typed(in[2]))};
}

constexpr Op<> kWhere{
    .name = "where",
    .meta = chosen,
    .rules = elementwise_rules,
    .local = [](Locals in, const None&, const None&,
                const Site&) { return tensors::where(in[0], in[1], in[2]); },
    .backward = [](const Context<None, None>& c) -> Tensors {
      const Tensor condition = c.input(0), zero = zeros_like(c.grad());
      return {Tensor(), c.needs(1) ? back_to(c, 1, where(condition, c.grad(), zero)) : Tensor(),
              c.needs(2) ? back_to(c, 2, where(condition, zero, c.grad())) : Tensor()};
    },
    .saves = saves_input(0)};

/// The extreme of what the ranks have is that of the whole.
template <ReduceOp kOver>
void extreme_rules(Rules& r, Metas, const None&) {
  r.pointwise().cut_all();
  r.also({Partial(kOver), Replicate()}, Partial(kOver));
  r.also({Replicate(), Partial(kOver)}, Partial(kOver));
  r.also({Partial(kOver), Partial(kOver)}, Partial(kOver));
}

/// All of it where the first is ahead, half where they are equal.
template <Tensor (*kAhead)(const Tensor&, const Tensor&)>
Tensors extreme_gradients(const Context<None, None>& c) {
  const Tensor a = without_partial(c.input(0)), b = without_partial(c.input(1));
  const Tensor zero = zeros_like(c.grad());
  const Tensor shared = where(eq(a, b), c.grad() * 0.5, c.grad());
  return {c.needs(0) ? back_to(c, 0, where(kAhead(b, a), zero, shared)) : Tensor(),
          c.needs(1) ? back_to(c, 1, where(kAhead(a, b), zero, shared)) : Tensor()};
}

constexpr Op<> kMaximum{.name = "maximum",
                        .meta = promoted,
                        .rules = extreme_rules<ReduceOp::max>,
                        .local = run_binary<tensors::maximum>,
                        .backward = extreme_gradients<gt>,
                        .saves = saves_inputs(0, 1)};
constexpr Op<> kMinimum{.name = "minimum",
                        .meta = promoted,
                        .rules = extreme_rules<ReduceOp::min>,
                        .local = run_binary<tensors::minimum>,
                        .backward = extreme_gradients<lt>,
                        .saves = saves_inputs(0, 1)};

}  // namespace

Tensor eq(const Tensor& a, const Tensor& b) {
  return call(kEq, a, b);
}
Tensor ne(const Tensor& a, const Tensor& b) {
  return call(kNe, a, b);
}
Tensor lt(const Tensor& a, const Tensor& b) {
  return call(kLt, a, b);
}
Tensor le(const Tensor& a, const Tensor& b) {
  return call(kLe, a, b);
}
Tensor gt(const Tensor& a, const Tensor& b) {
  return call(kGt, a, b);
}
Tensor ge(const Tensor& a, const Tensor& b) {
  return call(kGe, a, b);
}
Tensor eq(const Tensor& a, Scalar b) {
  return call(kEqNumber, a, None{}, Against{b});
}
Tensor ne(const Tensor& a, Scalar b) {
  return call(kNeNumber, a, None{}, Against{b});
}
Tensor lt(const Tensor& a, Scalar b) {
  return call(kLtNumber, a, None{}, Against{b});
}
Tensor le(const Tensor& a, Scalar b) {
  return call(kLeNumber, a, None{}, Against{b});
}
Tensor gt(const Tensor& a, Scalar b) {
  return call(kGtNumber, a, None{}, Against{b});
}
Tensor ge(const Tensor& a, Scalar b) {
  return call(kGeNumber, a, None{}, Against{b});
}
Tensor logical_and(const Tensor& a, const Tensor& b) {
  return call(kAnd, a, b);
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
  return call(kOr, a, b);
}
Tensor logical_xor(const Tensor& a, const Tensor& b) {
  return call(kXor, a, b);
}
Tensor maximum(const Tensor& a, const Tensor& b) {
  return call(kMaximum, a, b);
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  return call(kMinimum, a, b);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Tensor* const inputs[] = {&condition, &a, &b};
  return call(kWhere, std::span<const Tensor* const>(inputs));
}

}  // namespace dtrun::dtensor
