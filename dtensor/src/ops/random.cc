#include "dtrun/dtensor/ops/random.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "autograd/call.h"
#include "autograd/named_call.h"
#include "autograd/random_part.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/random.h"
#include "ops/factory.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using tensors::RandomBlock;

struct Drop {
  RandomKey key;
  double p;
  std::shared_ptr<const std::vector<RandomPart>> parts;  ///< null: the tensor is all there is
};

/// Of the parts' whole: the extent of each dim, and what of it is in the block.
std::vector<RandomPart::Extent> extents_of(const RandomBlock& block, const Drop& drop) {
  std::vector<RandomPart::Extent> extents;
  for (std::size_t d = 0; d < block.shape.size(); ++d)
    extents.push_back({block.global_shape[d], {{block.offsets[d], block.shape[d]}}});
  for (auto part = drop.parts->rbegin(); part != drop.parts->rend(); ++part) {
    const auto dim = static_cast<std::size_t>(part->dim());
    if (dim < extents.size() && block.shape[dim] > 0) extents[dim] = part->around(extents[dim]);
  }
  return extents;
}

/// @param dim the first in which the part may still have several runs; before it `block` is settled
void drop_runs(const LocalTensor& to, const LocalTensor& from, const Drop& drop,
               const std::vector<RandomPart::Extent>& extents, RandomBlock block, std::size_t dim) {
  if (dim == extents.size()) {
    to.copy_(tensors::dropout(from, drop.p, block, drop.key));
    return;
  }
  std::int64_t at = 0;
  for (const auto& [first, count] : extents[dim].runs) {
    block.offsets[dim] = first;
    block.shape[dim] = count;
    const int narrowed = static_cast<int>(dim);
    drop_runs(to.narrow(narrowed, at, count), from.narrow(narrowed, at, count), drop, extents,
              block, dim + 1);
    at += count;
  }
}

LocalTensor dropped(const LocalTensor& a, const Drop& drop, RandomBlock block) {
  if (drop.parts == nullptr || a.numel() == 0) return tensors::dropout(a, drop.p, block, drop.key);
  const std::vector<RandomPart::Extent> extents = extents_of(block, drop);
  const auto is_one = [](const RandomPart::Extent& extent) { return extent.runs.size() == 1; };
  for (std::size_t d = 0; d < extents.size(); ++d) {
    block.global_shape[d] = extents[d].size;
    block.offsets[d] = extents[d].runs[0].first;
  }
  if (std::ranges::all_of(extents, is_one)) return tensors::dropout(a, drop.p, block, drop.key);
  const LocalTensor result = tensors::empty(a.shape(), {a.dtype(), a.device()});
  drop_runs(result, a, drop, extents, block, 0);
  return result;
}

/// Multiplies by a mask, and so is its own gradient.
constexpr Op<None, Drop> kDropout{
    .name = "dropout",
    .meta = [](Metas in, const None&) { return in[0]; },
    .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all().additive(); },
    .local = [](Locals in, const None&, const Drop& drop, const Site& site) -> LocalTensor {
      const LocalTensor& a = in[0];
      const RandomBlock block =
          site.output ? RandomBlock{site.output.shape(), site.output.local_box().offsets, a.shape()}
                      : RandomBlock::whole(a.shape());
      return dropped(a, drop, block);
    },
    .backward = [](const Context<None, Drop>& c) -> Tensors {
      return {call(kDropout, c.grad(), None{}, c.numbers())};
    }};

void require_floating_numbers(std::string_view op, DType dtype) {
  if (tensors::is_floating_point(dtype)) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " of " + std::string(tensors::dtype_name(dtype)) + " numbers",
              "they are floating point", "randint(), or another dtype");
}
/// That the dtype has all of [least, end).
void require_whole_numbers(std::string_view op, std::int64_t least, std::int64_t end, DType dtype) {
  const auto within = [&](std::int64_t low, std::int64_t high) {
    return least >= low && end - 1 <= high;
  };
  if (end <= least) return;
  const bool fits = dtype == DType::u8        ? within(0, UINT8_MAX)
                    : dtype == DType::boolean ? within(0, 1)
                    : dtype == DType::i8      ? within(INT8_MIN, INT8_MAX)
                    : dtype == DType::i16     ? within(INT16_MIN, INT16_MAX)
                    : dtype == DType::i32     ? within(INT32_MIN, INT32_MAX)
                    : dtype == DType::f16     ? within(-65504, 65504)
                                              : true;
  if (fits) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(op) + " from " + std::to_string(least) + " to " +
                  std::to_string(end - 1) + " of " + std::string(tensors::dtype_name(dtype)),
              "that dtype does not have them all", "a wider dtype");
}

/// What is wrong with its sizes is told as the factory's.
template <typename Make>
Tensor drawn_as(std::string_view factory, const Shape& shape, Make make) {
  return named_call(factory, {}, [&]() -> Tensor {
    tensors::numel(shape);  // refuses negative ones
    return make();
  });
}

RandomBlock block_of(const Shape& shape, const Box& box) {
  return {shape, box.offsets, box.shape};
}

}  // namespace

Tensor randn(const Shape& shape, TensorOptions options) {
  return randn(shape, next_random_key(), options);
}
Tensor randn(const Shape& shape, RandomKey key, TensorOptions options) {
  return drawn_as("randn", shape, [&] {
    require_floating_numbers("randn", options.dtype);
    return tensors::randn(shape, key, options);
  });
}
Tensor rand(const Shape& shape, TensorOptions options) {
  return rand(shape, next_random_key(), options);
}
Tensor rand(const Shape& shape, RandomKey key, TensorOptions options) {
  return drawn_as("rand", shape, [&] {
    require_floating_numbers("rand", options.dtype);
    return tensors::rand_block(RandomBlock::whole(shape), key, options);
  });
}
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, TensorOptions options) {
  return randint(low, high, shape, next_random_key(), options);
}
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, RandomKey key,
               TensorOptions options) {
  return drawn_as("randint", shape, [&] {
    require_whole_numbers("randint", low, high, options.dtype);
    return tensors::randint_block(low, high, RandomBlock::whole(shape), key, options);
  });
}
Tensor randperm(std::int64_t n, TensorOptions options) {
  return randperm(n, next_random_key(), options);
}
Tensor randperm(std::int64_t n, RandomKey key, TensorOptions options) {
  return drawn_as("randperm", {n}, [&] {
    require_whole_numbers("randperm", 0, n, options.dtype);
    return tensors::randperm(n, key, options);
  });
}

Tensor randn_like(const Tensor& a) {
  return named_call("randn_like", {{"input", a}}, [&] {
    require_floating_numbers("randn_like", a.dtype());
    const RandomKey key = next_random_key();
    return make_like(a, [&](const Box& box, TensorOptions options) {
      return tensors::randn_block(a.shape(), box.offsets, box.shape, key, options);
    });
  });
}
Tensor rand_like(const Tensor& a) {
  return named_call("rand_like", {{"input", a}}, [&] {
    require_floating_numbers("rand_like", a.dtype());
    const RandomKey key = next_random_key();
    return make_like(a, [&](const Box& box, TensorOptions options) {
      return tensors::rand_block(block_of(a.shape(), box), key, options);
    });
  });
}
Tensor randint_like(const Tensor& a, std::int64_t low, std::int64_t high) {
  return named_call("randint_like", {{"input", a}}, [&] {
    require_whole_numbers("randint_like", low, high, a.dtype());
    const RandomKey key = next_random_key();
    return make_like(a, [&](const Box& box, TensorOptions options) {
      return tensors::randint_block(low, high, block_of(a.shape(), box), key, options);
    });
  });
}

Tensor randn(const Shape& shape, RandomKey key, const DeviceMesh& mesh,
             const Placements& placements, DType dtype, const ShardOrder& order) {
  return drawn_as("randn", shape, [&] {
    require_floating_numbers("randn", dtype);
    return make_parts(shape, mesh, placements, dtype, order,
                      [&](const Box& box, TensorOptions options) {
                        return tensors::randn_block(shape, box.offsets, box.shape, key, options);
                      });
  });
}
Tensor rand(const Shape& shape, RandomKey key, const DeviceMesh& mesh, const Placements& placements,
            DType dtype, const ShardOrder& order) {
  return drawn_as("rand", shape, [&] {
    require_floating_numbers("rand", dtype);
    return make_parts(shape, mesh, placements, dtype, order,
                      [&](const Box& box, TensorOptions options) {
                        return tensors::rand_block(block_of(shape, box), key, options);
                      });
  });
}
Tensor randn(const Shape& shape, const DeviceMesh& mesh, const Placements& placements, DType dtype,
             const ShardOrder& order) {
  return randn(shape, next_random_key(), mesh, placements, dtype, order);
}
Tensor rand(const Shape& shape, const DeviceMesh& mesh, const Placements& placements, DType dtype,
            const ShardOrder& order) {
  return rand(shape, next_random_key(), mesh, placements, dtype, order);
}
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, const DeviceMesh& mesh,
               const Placements& placements, DType dtype, const ShardOrder& order) {
  return drawn_as("randint", shape, [&] {
    require_whole_numbers("randint", low, high, dtype);
    const RandomKey key = next_random_key();
    return make_parts(
        shape, mesh, placements, dtype, order, [&](const Box& box, TensorOptions options) {
          return tensors::randint_block(low, high, block_of(shape, box), key, options);
        });
  });
}
Tensor randperm(std::int64_t n, const DeviceMesh& mesh, const Placements& placements, DType dtype,
                const ShardOrder& order) {
  // A place in an order is known only with all of it.
  const Tensor whole = randperm(n, TensorOptions{.dtype = dtype});
  return make_parts(
      {n}, mesh, placements, dtype, order,
      [&](const Box& box, TensorOptions options) -> LocalTensor {
        return whole.narrow(0, box.offsets[0], box.shape[0]).to(options.device).clone();
      });
}

Tensor dropout(const Tensor& x, const DropoutOptions& options) {
  return named_call("dropout", {{"input", x}}, [&] {
    if (!tensors::is_floating_point(x.dtype())) {
      throw Error(ErrorCode::kInvalidArgument,
                  "dropout of a tensor of " + std::string(tensors::dtype_name(x.dtype())),
                  "it takes floating point numbers", "to(DType::f32)");
    }
    if (!(options.p >= 0 && options.p <= 1)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "dropout with probability " + std::to_string(options.p),
                  "it lies between 0 and 1", "the share of elements that become 0");
    }
    if (!options.training) return x;
    // A key of one's own is of this tensor alone.
    std::vector<RandomPart> parts;
    if (!options.key) parts = RandomPart::standing();
    const RandomKey key = options.key ? *options.key : next_random_key();
    return call(
        kDropout, x, None{},
        Drop{key, options.p,
             parts.empty() ? nullptr
                           : std::make_shared<const std::vector<RandomPart>>(std::move(parts))});
  });
}

}  // namespace dtrun::dtensor
