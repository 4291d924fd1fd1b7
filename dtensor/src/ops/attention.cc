#include "dtrun/dtensor/ops/attention.h"

#include <cmath>
#include <limits>

#include "autograd/call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/views.h"
#include "dtrun/tensor/ops/pointwise.h"

namespace dtrun::dtensor {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

struct Fill {
  double value;
};

/// Positions [offset, offset + count), as a column or a row.
LocalTensor positions(std::int64_t offset, std::int64_t count, tensors::Device device) {
  return tensors::add(tensors::arange(count, {DType::i64, device}), offset);
}

/// [..., L, S]: what lies above the diagonal of the whole is filled.
constexpr Op<None, Fill> kCausal{
    .name = "causal_mask",
    .meta = [](Metas in, const None&) { return in[0]; },
    .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all(); },
    .local = [](Locals in, const None&, const Fill& fill, const Site& site) -> LocalTensor {
      const LocalTensor& a = in[0];
      const std::size_t rows = a.shape().size() - 2;
      const Shape offsets =
          site.output ? site.output.local_box().offsets : Shape(a.shape().size(), 0);
      const LocalTensor seen =
          tensors::le(positions(offsets[rows + 1], a.size(-1), a.device()),
                      positions(offsets[rows], a.size(-2), a.device()).unsqueeze(-1));
      return tensors::where(seen, a, tensors::full({}, fill.value, {a.dtype(), a.device()}));
    },
    .backward = [](const Context<None, Fill>& c) -> Tensors {
      return {call(kCausal, c.grad(), None{}, Fill{0})};
    }};

std::string shapes_of(const Tensor& query, const Tensor& key, const Tensor& value) {
  return tensors::shape_to_string(query.shape()) + ", " + tensors::shape_to_string(key.shape()) +
         " and " + tensors::shape_to_string(value.shape());
}

[[noreturn]] void refuse_attention(std::string what, std::string why, std::string remedy = {}) {
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    "scaled_dot_product_attention of " + std::move(what), std::move(why),
                    std::move(remedy));
}

void check_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                     const AttentionOptions& options) {
  const std::string shapes = shapes_of(query, key, value);
  if (query.dim() < 2 || key.dim() < 2 || value.dim() < 2) {
    refuse_attention(shapes, "each has two dims at least: positions, and numbers at each");
  }
  if (query.size(-1) != key.size(-1)) refuse_attention(shapes, "queries and keys differ in length");
  if (key.size(-2) != value.size(-2)) refuse_attention(shapes, "each key has one value");
  if (!tensors::is_floating_point(query.dtype()) || key.dtype() != query.dtype() ||
      value.dtype() != query.dtype()) {
    refuse_attention(std::string(tensors::dtype_name(query.dtype())) + ", " +
                         std::string(tensors::dtype_name(key.dtype())) + " and " +
                         std::string(tensors::dtype_name(value.dtype())),
                     "they have one floating point dtype", "to()");
  }
  if (options.is_causal && options.attn_mask.defined()) {
    refuse_attention("a mask and is_causal", "one of them says who sees whom",
                     "a mask that is causal, too");
  }
  if (!options.enable_gqa) return;
  if (query.dim() < 3 || key.dim() < 3 || value.dim() < 3 || key.size(-3) == 0 ||
      value.size(-3) != key.size(-3) || query.size(-3) % key.size(-3) != 0) {
    refuse_attention(shapes + ", grouped",
                     "the heads of the queries, in dim -3, are a multiple of the others'");
  }
}

/// With the queries of one head of keys in a dim of their own: [..., heads, group, L, E].
Tensor grouped(const Tensor& a, std::int64_t heads) {
  return unflatten(a, -3, {heads, a.size(-3) / heads});
}

/// The mask as it meets scores [..., heads, group, L, S].
Tensor grouped_mask(const Tensor& mask, std::int64_t heads) {
  if (!mask.defined() || mask.dim() < 3) return mask;
  return mask.size(-3) == 1 ? mask.unsqueeze(-3) : grouped(mask, heads);
}

/// Softmax of scores under a mask; 0 where a query sees nothing, whose gradient is 0, too.
Tensor masked_softmax(const Tensor& scores, const Tensor& mask) {
  const bool is_bool = mask.dtype() == DType::boolean;
  const Tensor nothing = full({}, kMinusInfinity, {.dtype = scores.dtype()});
  const Tensor none = zeros({}, {.dtype = scores.dtype()});
  const Tensor sees = is_bool ? mask : ne(mask, kMinusInfinity);
  const Tensor blind = eq(sum(sees, {-1}, true), 0);
  const Tensor masked = is_bool ? where(mask, scores, nothing) : (scores + mask).to(scores.dtype());
  return where(blind, none, softmax(where(blind, none, masked), -1));
}

Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
              const AttentionOptions& options) {
  const double length = static_cast<double>(std::max<std::int64_t>(query.size(-1), 1));
  const double scale = options.scale.value_or(1 / std::sqrt(length));
  Tensor scores = matmul(query * scale, key.transpose(-2, -1));
  if (options.is_causal) scores = call(kCausal, scores, None{}, Fill{kMinusInfinity});
  Tensor weights = mask.defined() ? masked_softmax(scores, mask) : softmax(scores, -1);
  if (options.dropout_p != 0) weights = dropout(weights, {.p = options.dropout_p});
  return matmul(weights, value);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  check_attention(query, key, value, options);
  if (!options.enable_gqa) return attend(query, key, value, options.attn_mask, options);
  const std::int64_t heads = key.size(-3);
  const Tensor result = attend(grouped(query, heads), key.unsqueeze(-3), value.unsqueeze(-3),
                               grouped_mask(options.attn_mask, heads), options);
  return flatten(result, -4, -3);
}

}  // namespace dtrun::dtensor
