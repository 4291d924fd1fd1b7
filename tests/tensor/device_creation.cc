#include "tensor/device_creation.h"

#include <gtest/gtest.h>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"
#include "dtrun/tensor/ops/random.h"
#include "tensor/device_comparison.h"

namespace dtrun::tensors {

void expect_random_as_on_host(Device device) {
  const std::vector<RandomBlock> blocks = {RandomBlock::whole({1003}),
                                           RandomBlock::whole({}),
                                           RandomBlock::whole({0, 3}),
                                           RandomBlock::whole({7, 5, 3}),
                                           {{10, 6}, {3, 0}, {4, 6}},
                                           {{6, 5, 8}, {1, 2, 3}, {3, 2, 5}},
                                           {{4, 9}, {0, 1}, {4, 7}},
                                           {{3, 5, 2, 3}, {1, 1, 0, 0}, {2, 3, 2, 3}},
                                           {{9}, {3}, {5}}};
  constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min();
  constexpr RandomKey kKey{0x123456789ABCDEF0, 77};
  for (const RandomBlock& block : blocks) {
    for (const DType dtype : kAllDTypes) {
      const std::string what =
          std::string(dtype_name(dtype)) + " of " + shape_to_string(block.shape);
      const TensorOptions here{.dtype = dtype}, there{dtype, device};
      const auto& [whole, offsets, shape] = block;
      expect_same(randn_block(whole, offsets, shape, kKey, there),
                  randn_block(whole, offsets, shape, kKey, here), device, "randn " + what);
      expect_same(randint_block(-3, 200, block, kKey, there),
                  randint_block(-3, 200, block, kKey, here), device, "randint " + what);
      expect_same(randint_block(kLow, -(kLow + 1), block, kKey, there),
                  randint_block(kLow, -(kLow + 1), block, kKey, here), device,
                  "wide randint " + what);
      for (const double p : {0.0, 0.3, 1.0}) {
        expect_same(dropout_mask(p, block, kKey, there), dropout_mask(p, block, kKey, here), device,
                    "dropout " + what);
      }
      if (!is_floating_point(dtype)) continue;
      const LocalTensor a = numbers(shape, dtype, 8);
      expect_same(dropout(like(a, device), 0.3, block, kKey), dropout(a, 0.3, block, kKey), device,
                  "dropout of " + what);
      expect_same(rand_block(block, kKey, there), rand_block(block, kKey, here), device,
                  "rand " + what);
    }
  }
  EXPECT_THROW(rand_block(RandomBlock::whole({2}), {}, {DType::i64, device}), base::Error);
  EXPECT_THROW(randint_block(2, 2, RandomBlock::whole({2}), {}, {DType::i64, device}), base::Error);
  expect_same(randperm(100, kKey, {DType::i32, device}), randperm(100, kKey, {DType::i32}), device,
              "randperm");
  // Dims that cannot be merged.
  EXPECT_THROW(randn_block(Shape(13, 3), Shape(13, 1), Shape(13, 1), {}, {DType::f32, device}),
               base::Error);
}

void expect_lines_and_triangles_as_on_host(Device device) {
  for (const DType dtype : kAllDTypes) {
    const TensorOptions here{.dtype = dtype}, there{dtype, device};
    const std::string what(dtype_name(dtype));
    for (const std::int64_t steps : {0, 1, 2, 7, 100}) {
      if (dtype == DType::boolean) break;
      expect_same(linspace(-2.5, 9, steps, there), linspace(-2.5, 9, steps, here), device,
                  "linspace " + what);
    }
    expect_same(eye(3, 5, there), eye(3, 5, here), device, "eye " + what);
    for (const Shape& shape : std::vector<Shape>{{5, 4}, {2, 3, 6}, {0, 3}, {3, 0}}) {
      const LocalTensor host = numbers(shape, dtype, 4);
      for (const std::int64_t diagonal : {0, 1, -1, 9, -9}) {
        expect_same(tril(host.to(device), diagonal), tril(host, diagonal), device, "tril " + what);
        expect_same(triu(host.to(device), diagonal), triu(host, diagonal), device, "triu " + what);
        const LocalTensor turned = host.transpose(-1, -2);
        expect_same(tril(host.to(device).transpose(-1, -2), diagonal), tril(turned, diagonal),
                    device, "turned tril " + what);
      }
    }
  }
}

}  // namespace dtrun::tensors
