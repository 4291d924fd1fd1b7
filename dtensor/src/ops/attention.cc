#include "dtrun/dtensor/ops/attention.h"

#include <cmath>
#include <limits>
#include <memory>

#include "autograd/call.h"
#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/views.h"
#include "dtrun/tensor/ops/attention.h"
#include "dtrun/tensor/ops/pointwise.h"
#include "ops/attention_scope.h"

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

[[noreturn]] void refuse_attention(std::string what, std::string why, std::string remedy) {
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    "scaled_dot_product_attention of " + std::move(what), std::move(why),
                    std::move(remedy));
}

void check_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                     const AttentionOptions& options) {
  const std::string shapes = shapes_of(query, key, value);
  if (query.dim() < 2 || key.dim() < 2 || value.dim() < 2) {
    refuse_attention(shapes, "each has two dims at least: positions, and numbers at each",
                     "unsqueeze() it");
  }
  if (query.size(-1) != key.size(-1))
    refuse_attention(shapes, "queries and keys differ in length",
                     "a query and keys with one last size");
  if (key.size(-2) != value.size(-2))
    refuse_attention(shapes, "each key has one value", "keys and values with one size in dim -2");
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
                     "the heads of the queries, in dim -3, are a multiple of the others'",
                     "as many heads in keys and values, or a divisor of the queries'");
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

/// Which keys a query sees, and how scores are scaled.
struct Sight {
  double scale;
  bool causal;
};

Tensor attention_weights(const Tensor& query, const Tensor& key, const Tensor& mask,
                         const Sight& sight) {
  Tensor scores = matmul(query * sight.scale, key.transpose(-2, -1));
  if (sight.causal) scores = call(kCausal, scores, None{}, Fill{kMinusInfinity});
  return mask.defined() ? masked_softmax(scores, mask) : softmax(scores, -1);
}

/// [batch..., L, E], [batch..., S, E], [batch..., S, Ev] and a mask behind `first` others that run
/// over batch and L. Queries are cut, too: a part of the keys' gradients is a sum then.
Rules& attention_rules(Rules& r, Metas in, std::size_t first, std::size_t after) {
  const int batch = static_cast<int>(in[first].shape.size()) - 2;
  const auto dims = [batch](int rows) {
    Rules::Indices indices;
    for (int d = 0; d < batch; ++d) indices.push_back(d);
    indices.push_back(rows);
    indices.push_back(sharding::kBroadcast);
    return indices;
  };
  const Rules::Indices queries = dims(batch), keys = dims(sharding::kBroadcast);
  std::vector<Rules::Indices> inputs(first, queries);
  inputs.insert(inputs.end(), {queries, keys, keys});
  for (std::size_t i = 0; i < after; ++i) inputs.push_back(queries);
  // The sums have no dim of numbers.
  if (after == 2) inputs.back().pop_back();
  if (inputs.size() < in.size()) {
    const Shape& mask = in.back().shape;
    Rules::Indices indices(mask.size(), sharding::kBroadcast);
    for (std::size_t d = 0; d + 1 < mask.size(); ++d) {
      const int index = batch + 2 - static_cast<int>(mask.size() - d);
      if (mask[d] != 1) indices[d] = index;
    }
    inputs.push_back(std::move(indices));
  }
  return r.indices(std::move(inputs), queries).cut_all();
}

tensors::AttentionForm local_form(const Sight& sight, const Site& site, const LocalTensor* mask) {
  tensors::AttentionForm form{.scale = sight.scale};
  if (mask != nullptr) form.mask = *mask;
  if (sight.causal) {
    const std::size_t queries = site.output ? site.output.shape().size() - 2 : 0;
    form.causal_from = site.output ? site.output.local_box().offsets[queries] : 0;
  }
  return form;
}

/// What the pass over the keys leaves besides the result, for the way back.
struct Attend {
  Sight sight;
  std::shared_ptr<LocalTensor> logsumexp;
};
using AttendContext = Context<None, Attend>;

/// Gradients of keys and values, which the one pass finds with those of the queries.
struct AttendBack {
  Sight sight;
  tensors::AttentionGradients* gradients;
};

/// gradient, query, key, value, result, logsumexp, [mask] -> the gradient of query
constexpr Op<None, AttendBack> kAttentionBackward{
    .name = "scaled_dot_product_attention_backward",
    .meta = [](Metas in, const None&) { return in[1]; },
    .rules = [](Rules& r, Metas in, const None&) { attention_rules(r, in, 1, 2); },
    .local = [](Locals in, const None&, const AttendBack& v, const Site& site) -> LocalTensor {
      const tensors::AttentionForm form =
          local_form(v.sight, site, in.size() > 6 ? &in[6] : nullptr);
      *v.gradients = tensors::attention_backward(in[0], in[1], in[2], in[3], {in[4], in[5]}, form);
      return v.gradients->query;
    }};

/// Without the last dim, cut as the result is.
Tensor sums_of(const Tensor& result, const LocalTensor& local) {
  if (!result.is_distributed()) return local;
  Shape shape = result.shape();
  shape.pop_back();
  return Tensor(make_spec(result.device_mesh(), result.placements(), std::move(shape),
                          local.dtype(), result.spec().shard_order()),
                local);
}

/// A gradient of what all queries see: the ranks that have some of them have a part of the sum.
Tensor of_all_queries(const Tensor& of_queries, const LocalTensor& local, const Shape& shape) {
  if (!of_queries.is_distributed()) return local;
  const int queries = of_queries.dim() - 2;
  Placements placements = of_queries.placements();
  for (Placement& placement : placements) {
    if (placement.is_shard() && placement.dim() == queries) placement = Partial();
  }
  ShardOrder order = of_queries.spec().shard_order();
  order.erase(queries);
  return Tensor(make_spec(of_queries.device_mesh(), placements, shape, local.dtype(), order),
                local);
}

/// The same in operations that have gradients.
Tensors attention_formula(const AttendContext& c) {
  const Sight& sight = c.numbers().sight;
  const Tensor q = c.input(0), k = c.input(1), v = c.input(2), g = c.grad();
  const Tensor weights = attention_weights(q, k, c.inputs() > 3 ? c.input(3) : Tensor(), sight);
  const Tensor slopes = matmul(g, v.transpose(-2, -1));
  const Tensor scores = weights * (slopes - sum(slopes * weights, {-1}, true));
  Tensors gradients(c.inputs());
  if (c.needs(0)) gradients[0] = matmul(scores, k) * sight.scale;
  if (c.needs(1)) gradients[1] = matmul(scores.transpose(-2, -1), q) * sight.scale;
  if (c.needs(2)) gradients[2] = matmul(weights.transpose(-2, -1), g);
  return gradients;
}

Tensors attention_gradients(const AttendContext& c) {
  if (Graph::is_on()) return attention_formula(c);
  const Tensor q = c.input(0), k = c.input(1), v = c.input(2), result = c.output();
  const Tensor sums = sums_of(result, *c.numbers().logsumexp);
  const Tensor mask = c.inputs() > 3 ? c.input(3) : Tensor();
  const Tensor* const inputs[] = {&c.grad(), &q, &k, &v, &result, &sums, &mask};
  tensors::AttentionGradients found;
  Tensors gradients(c.inputs());
  gradients[0] =
      call(kAttentionBackward, std::span<const Tensor* const>(inputs, mask.defined() ? 7 : 6),
           None{}, AttendBack{c.numbers().sight, &found});
  gradients[1] = of_all_queries(gradients[0], found.key, c.shape(1));
  gradients[2] = of_all_queries(gradients[0], found.value, c.shape(2));
  return gradients;
}

/// query, key, value, [mask]
constexpr Op<None, Attend> kAttention{
    .name = "scaled_dot_product_attention",
    .meta =
        [](Metas in, const None&) {
          Shape shape = in[0].shape;
          shape.back() = in[2].shape.back();
          return Meta{std::move(shape), in[0].dtype};
        },
    .rules = [](Rules& r, Metas in, const None&) { attention_rules(r, in, 0, 0); },
    .local = [](Locals in, const None&, const Attend& v, const Site& site) -> LocalTensor {
      const tensors::AttentionForm form =
          local_form(v.sight, site, in.size() > 3 ? &in[3] : nullptr);
      const tensors::Attended attended = tensors::attention(in[0], in[1], in[2], form);
      *v.logsumexp = attended.logsumexp;
      return attended.output;
    },
    .backward = attention_gradients,
    .saves = Saves{0b1111, true}};

Shape batch_of(const Tensor& a) {
  return Shape(a.shape().begin(), a.shape().end() - std::min(a.dim(), 2));
}
Tensor with_batch(const Tensor& a, Shape batch) {
  if (batch_of(a) == batch) return a;
  batch.push_back(a.size(-2));
  batch.push_back(a.size(-1));
  return a.expand(batch);
}

Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
              const AttentionOptions& options) {
  const double length = static_cast<double>(std::max<std::int64_t>(query.size(-1), 1));
  const Sight sight{options.scale.value_or(1 / std::sqrt(length)), options.is_causal};
  const bool learns_mask = mask.defined() && mask.requires_grad() && Graph::is_on();
  if (options.dropout_p != 0 || learns_mask) {
    Tensor weights = attention_weights(query, key, mask, sight);
    if (options.dropout_p != 0) weights = dropout(weights, {.p = options.dropout_p});
    return matmul(weights, value);
  }
  Shape batch = tensors::broadcast_shapes(batch_of(query), batch_of(key));
  batch = tensors::broadcast_shapes(batch, batch_of(value));
  if (mask.defined()) batch = tensors::broadcast_shapes(batch, batch_of(mask));
  const Tensor q = with_batch(query, batch), k = with_batch(key, batch),
               v = with_batch(value, batch);
  const Tensor* const inputs[] = {&q, &k, &v, &mask};
  return call(kAttention, std::span<const Tensor* const>(inputs, mask.defined() ? 4 : 3), None{},
              Attend{sight, std::make_shared<LocalTensor>()});
}

Tensor attend_in_scope(const Tensor& query, const Tensor& key, const Tensor& value,
                       const AttentionOptions& options) {
  check_attention(query, key, value, options);
  const AttentionScope* const scope = AttentionScope::innermost();
  if (scope != nullptr && !query.is_distributed())
    return scope->function(query, key, value, options);
  if (!options.enable_gqa) return attend(query, key, value, options.attn_mask, options);
  const std::int64_t heads = key.size(-3);
  const Tensor result = attend(grouped(query, heads), key.unsqueeze(-3), value.unsqueeze(-3),
                               grouped_mask(options.attn_mask, heads), options);
  return flatten(result, -4, -3);
}

}  // namespace

const AttentionScope* AttentionScope::innermost() {
  const surroundings::Standing& all = surroundings::standing();
  for (auto each = all.rbegin(); each != all.rend(); ++each) {
    if (const auto* const scope = dynamic_cast<const AttentionScope*>(each->get())) return scope;
  }
  return nullptr;
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  const CallArgument mask = CallArgument::if_given("attn_mask", options.attn_mask);
  return named_call("scaled_dot_product_attention",
                    {{"query", query}, {"key", key}, {"value", value}, mask},
                    [&] { return attend_in_scope(query, key, value, options); });
}

}  // namespace dtrun::dtensor
