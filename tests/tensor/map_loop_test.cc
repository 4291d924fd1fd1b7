// What map_elements promises an inner loop: where its operands lie.
#include "loops/map_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>

#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"

namespace dtrun::tensors {
namespace {

/// How often an operand began where a float may not. An inner loop is a plain function.
std::atomic<int> misplaced = 0;

void count_if_misplaced(const void* operand) {
  if (std::bit_cast<std::uintptr_t>(operand) % alignof(float) != 0) ++misplaced;
}

/// out = in[0] ? in[1] : in[2]; in[0] of bool, the others of float
void choose(void* out, const void* const* in, std::int64_t count, const MapNumbers&) {
  count_if_misplaced(in[1]);
  count_if_misplaced(in[2]);
  if (misplaced != 0) return;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool first = static_cast<const bool*>(in[0])[i];
    static_cast<float*>(out)[i] = static_cast<const float*>(in[first ? 1 : 2])[i];
  }
}

/// out = in[0] + in[1] * in[2]; all of float
void add_product(void* out, const void* const* in, std::int64_t count, const MapNumbers&) {
  for (int k = 0; k < 3; ++k) count_if_misplaced(in[k]);
  if (misplaced != 0) return;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = [&](int k) { return static_cast<const float*>(in[k])[i]; };
    static_cast<float*>(out)[i] = at(0) + at(1) * at(2);
  }
}

/// @param first_dtype what the loop takes of the first input; float of the others
LocalTensor mapped(MapRun run, const Shape& shape, const std::array<LocalTensor, 3>& inputs,
                   DType first_dtype) {
  const LocalTensor out = empty(shape);
  const MapOperand operands[] = {MapOperand::of(inputs[0], first_dtype),
                                 MapOperand::of(inputs[1], DType::f32),
                                 MapOperand::of(inputs[2], DType::f32)};
  misplaced = 0;
  map_elements(shape, MapOperand::of(out, DType::f32), operands, run, {});
  return out;
}

TEST(MapLoopTest, RowsThatAllShareBeginWhereTheirElementsMay) {
  for (const std::int64_t length : {1, 2, 7, 9, 16, 33, 511}) {
    for (const std::int64_t rows : {2, 3, 5, 130}) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << length);
      const LocalTensor x = randn({rows, length}, {.seed = 1}), y = randn({length}, {.seed = 2});
      const LocalTensor mask = ne(remainder(arange(length), 3), 0);
      EXPECT_TRUE(equal(mapped(&choose, x.shape(), {mask, x, y}, DType::boolean),
                        where(mask.expand(x.shape()), x, y.expand(x.shape()))));
      EXPECT_EQ(misplaced, 0) << "a row of bool before one of f32";
      const LocalTensor half = randn({length}, {.seed = 3}).to(DType::bf16);
      EXPECT_TRUE(equal(mapped(&add_product, x.shape(), {half, x, y}, DType::f32),
                        add(half.to(DType::f32), mul(x, y))));
      EXPECT_EQ(misplaced, 0) << "a row of bf16 before one of f32";
    }
  }
}

}  // namespace
}  // namespace dtrun::tensors
