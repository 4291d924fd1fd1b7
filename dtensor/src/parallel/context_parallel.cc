#include "dtrun/dtensor/parallel/context_parallel.h"

#include <cmath>
#include <memory>
#include <string>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/function.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/views.h"
#include "nn/model_agreement.h"
#include "ops/attention_scope.h"
#include "parallel/one_axis.h"
#include "parallel/part_hooks.h"
#include "parallel/ring_attention.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

struct RingAttention : autograd::Function<RingAttention> {
  static Tensor forward(autograd::FunctionContext& ctx, const Tensor& query, const Tensor& key,
                        const Tensor& value, const Ring& ring) {
    const LocalTensor q = query.local().contiguous(), k = key.local().contiguous(),
                      v = value.local().contiguous();
    const tensors::Attended found = ring_forward(ring, q, k, v);
    ctx.save_for_backward({q, k, v, found.output, found.logsumexp});
    ctx.saved_data["ring"] = ring;
    return found.output;
  }
  static Tensors backward(autograd::FunctionContext& ctx, const Tensor& gradient) {
    const Tensors saved = ctx.saved_tensors();
    const tensors::AttentionGradients found = ring_backward(
        std::any_cast<const Ring&>(ctx.saved_data["ring"]), gradient.local().contiguous(),
        saved[0].local(), saved[1].local(), saved[2].local(), {saved[3].local(), saved[4].local()});
    return {found.query, found.key, found.value};
  }
};

[[noreturn]] void refuse_ring(const std::string& what, const std::string& why,
                              const std::string& remedy) {
  throw Error(ErrorCode::kInvalidArgument, "ring_attention " + what, why, remedy);
}

void check_ring(const Tensor& query, const Tensor& key, const Tensor& value,
                const AttentionOptions& attention, const Ring& ring) {
  if (query.is_distributed() || key.is_distributed() || value.is_distributed())
    refuse_ring("of distributed tensors", "each rank gives its own positions", "to_local()");
  if (attention.attn_mask.defined())
    refuse_ring("with a mask", "no rank has all of its columns", "is_causal, or attention without");
  if (attention.dropout_p != 0)
    refuse_ring("with dropout of weights", "they are never stored", "dropout of the result");
  if (!query.device().is_cpu())
    refuse_ring("on " + query.device().to_string(), "its kernels are for CPUs",
                "gather the sequence: context_unshard()");
  const std::int64_t length = query.size(-2);
  const bool halves = ring.is_causal && ring.order == SequenceOrder::balanced;
  if (ring.is_causal && (key.size(-2) != length || (halves && length % 2 != 0))) {
    refuse_ring("of " + std::to_string(length) + " queries and " + std::to_string(key.size(-2)) +
                    " keys on a rank",
                halves ? "each rank has two equal chunks of positions"
                       : "causal attention has as many of both",
                "context_shard(), which cuts sequences so");
  }
}

/// Chunks of a sequence that this rank has.
std::vector<int> chunks_of(SequenceOrder order, int rank, int ranks) {
  if (order == SequenceOrder::contiguous) return {rank};
  return {rank, 2 * ranks - 1 - rank};
}

/// Positions in each chunk.
std::int64_t chunk_length(std::int64_t length, SequenceOrder order, int ranks) {
  const int chunks = order == SequenceOrder::contiguous ? ranks : 2 * ranks;
  if (length % chunks == 0) return length / chunks;
  throw Error(ErrorCode::kInvalidArgument,
              "a sequence of " + std::to_string(length) + " positions on " + std::to_string(ranks) +
                  " ranks",
              "it is cut into " + std::to_string(chunks) + " equal chunks",
              "pad it to " + std::to_string((length / chunks + 1) * chunks) + " positions");
}

}  // namespace

Tensor ring_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                      const DeviceMesh& mesh, const AttentionOptions& attention,
                      ContextParallelOptions options, Tensor::Site site) {
  const double numbers = static_cast<double>(std::max<std::int64_t>(query.size(-1), 1));
  const Ring ring{group_of_one_axis("ring_attention", mesh), options.order,
                  attention.scale.value_or(1 / std::sqrt(numbers)), attention.is_causal, site};
  check_ring(query, key, value, attention, ring);
  const auto with_heads_of = [&](const Tensor& a) {
    if (a.dim() < 3 || a.size(-3) == query.size(-3)) return a;
    // [..., heads, S, E], each for the queries of a group.
    Shape shape = a.shape();
    shape.insert(shape.end() - 2, query.size(-3) / a.size(-3));
    return flatten(a.unsqueeze(-3).expand(shape), -4, -3);
  };
  const bool is_grouped = attention.enable_gqa;
  return RingAttention::apply(query, is_grouped ? with_heads_of(key) : key,
                              is_grouped ? with_heads_of(value) : value, ring);
}

void context_parallel(nn::Module& module, const DeviceMesh& mesh, ContextParallelOptions options,
                      Tensor::Site site) {
  const ProcessGroup& group = group_of_one_axis("context_parallel", mesh);
  const char* const order =
      options.order == SequenceOrder::balanced ? "order balanced\n" : "order contiguous\n";
  check_same_model("context_parallel", module, group, site, order);
  const std::vector<int> chunks = chunks_of(options.order, group.rank(), group.size());
  const auto positions = std::make_shared<const RandomPart>(
      RandomPart::Level::positions, std::vector<std::int64_t>(chunks.begin(), chunks.end()), 1,
      static_cast<std::int64_t>(chunks.size()) * group.size(), mesh.ranks());
  const auto scope = std::make_shared<const AttentionScope>(
      [mesh, options, site](const Tensor& query, const Tensor& key, const Tensor& value,
                            const AttentionOptions& attention) {
        return ring_attention(query, key, value, mesh, attention, options, site);
      });
  // All modules: one of them may be called outside of the forward of those around it.
  for (const auto& [name, each] : module.named_modules()) {
    tell_part(*each, positions);
    // The forward's end is told of a forward that another hook has refused, too.
    const auto entered = std::make_shared<int>(0);
    each->register_forward_pre_hook([scope, entered](nn::Module&, const Tensors&) {
      surroundings::enter(scope);
      ++*entered;
      return Tensors();
    });
    each->register_forward_end_hook([entered](nn::Module&) {
      if (*entered == 0) return;
      --*entered;
      surroundings::leave();
    });
  }
}

Tensor context_shard(const Tensor& whole, const DeviceMesh& mesh, int dim,
                     ContextParallelOptions options) {
  const ProcessGroup& group = group_of_one_axis("context_shard", mesh);
  const std::int64_t length = chunk_length(whole.size(dim), options.order, group.size());
  Tensors chunks;
  for (const int chunk : chunks_of(options.order, group.rank(), group.size()))
    chunks.push_back(whole.narrow(dim, chunk * length, length));
  return cat(chunks, dim);
}

Tensor context_unshard(const Tensor& part, const DeviceMesh& mesh, int dim,
                       ContextParallelOptions options, Tensor::Site site) {
  const ProcessGroup& group = group_of_one_axis("context_unshard", mesh);
  const int placed = dim < 0 ? dim + part.dim() : dim;
  const Tensor whole = Tensor::from_local(part, mesh, {Shard(placed)}, {}, site).full_tensor(site);
  const std::int64_t length = chunk_length(whole.size(dim), options.order, group.size());
  Tensors chunks(static_cast<std::size_t>(whole.size(dim) / std::max<std::int64_t>(length, 1)));
  std::int64_t at = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    for (const int chunk : chunks_of(options.order, rank, group.size())) {
      chunks[static_cast<std::size_t>(chunk)] = whole.narrow(dim, at, length);
      at += length;
    }
  }
  return cat(chunks, dim);
}

Tensor context_positions(const DeviceMesh& mesh, std::int64_t length,
                         ContextParallelOptions options) {
  return context_shard(arange(length), mesh, 0, options);
}

}  // namespace dtrun::dtensor
