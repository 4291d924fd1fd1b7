// Attention (DeviceFamilies).
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/attention.h"
#include "tensor/device_comparison.h"
#include "tensor/device_families.h"

namespace dtrun::tensors {
namespace {

struct AttentionSizes {
  Shape batch;
  std::int64_t queries, keys;
};

LocalTensor attention_numbers(Shape shape, std::int64_t rows, std::int64_t columns, DType dtype,
                              std::uint64_t seed) {
  shape.push_back(rows);
  shape.push_back(columns);
  return randn(shape, {seed, 7}, {.dtype = DType::f64}).to(dtype);
}

void compare_attention(const AttentionSizes& sizes, const AttentionForm& form, DType dtype,
                       Device device) {
  const auto& [batch, queries, keys] = sizes;
  const LocalTensor q = attention_numbers(batch, queries, 12, dtype, 1);
  const LocalTensor k = attention_numbers(batch, keys, 12, dtype, 2);
  const LocalTensor v = attention_numbers(batch, keys, 10, dtype, 3);
  const LocalTensor g = attention_numbers(batch, queries, 10, dtype, 4);
  AttentionForm there = form;
  if (form.mask.defined()) there.mask = form.mask.to(device);
  const std::string what = "attention " + std::string(dtype_name(dtype)) +
                           shape_to_string(q.shape()) + " " + std::to_string(keys);
  const Attended expected = attention(q, k, v, form);
  const LocalTensor far[] = {like(q, device), like(k, device), like(v, device)};
  const Attended got = attention(far[0], far[1], far[2], there);
  expect_close(got.output, expected.output, device, what);
  EXPECT_EQ(got.logsumexp.dtype(), expected.logsumexp.dtype());
  expect_close(got.logsumexp, expected.logsumexp, device, what + ", sums");
  const AttentionGradients back = attention_backward(g, q, k, v, expected, form);
  const AttentionGradients far_back =
      attention_backward(g.to(device), far[0], far[1], far[2], got, there);
  expect_close(far_back.query, back.query, device, what + ", queries' gradient");
  expect_close(far_back.key, back.key, device, what + ", keys' gradient");
  expect_close(far_back.value, back.value, device, what + ", values' gradient");
}

/// Scores of 75,000 and more, which f16 does not hold.
void compare_large_scores(Device device) {
  const LocalTensor q = full({3, 12}, 100, {DType::f16});
  const LocalTensor k = (arange(5) + 90).unsqueeze(-1).expand({5, 12}).to(DType::f16);
  const LocalTensor v = attention_numbers({}, 5, 10, DType::f16, 3);
  const AttentionForm form{.scale = 0.7};
  const Attended got = attention(q.to(device), k.to(device), v.to(device), form);
  expect_close(got.output, attention(q, k, v, form).output, device, "attention of large scores");
}

/// The first 256 queries, which are computed at once, give the keys 204,800 and the values 131,072,
/// which f16 does not hold; the other 44 take nearly as much away. All of it is exact in f32.
void expect_gradients_that_cancel(Device device) {
  const TensorOptions halves{DType::f16};
  const LocalTensor q = full({300, 1}, 100, halves), k = zeros({2, 1}, halves);
  const LocalTensor v = tensor({0x1p-6, -0x1p-6}, {DType::f16}).unsqueeze(1);
  const LocalTensor g = full({300, 1}, 1024, halves);
  g.narrow(0, 256, 44).fill_(-5952);
  for (const Device where : {kCpu, device}) {
    const LocalTensor there[] = {g.to(where), q.to(where), k.to(where), v.to(where)};
    const Attended forward = attention(there[1], there[2], there[3], {});
    const AttentionGradients back =
        attention_backward(there[0], there[1], there[2], there[3], forward, {});
    EXPECT_EQ(back.query.to(kCpu).to_vector(), std::vector<double>(300)) << where.to_string();
    EXPECT_EQ(back.key.to(kCpu).to_vector(), (std::vector<double>{200, -200})) << where.to_string();
    EXPECT_EQ(back.value.to(kCpu).to_vector(), (std::vector<double>{128, 128}))
        << where.to_string();
  }
}

}  // namespace

void expect_attention_as_on_host(Device device) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    // More than are computed at once.
    compare_attention({{2}, 300, 70}, {.scale = 0.2}, dtype, device);
    compare_attention({{}, 300, 300}, {.scale = 0.2, .causal_from = 0}, dtype, device);
    // The first queries of the last case see nothing.
    for (const std::int64_t from : {-270, -5, 0, 9, 400}) {
      compare_attention({{2, 3}, from < -100 ? 300 : 20, 30}, {.scale = 0.3, .causal_from = from},
                        dtype, device);
    }
    compare_attention({{2}, 0, 5}, {}, dtype, device);
    compare_attention({{2}, 5, 0}, {}, dtype, device);
    const LocalTensor seen = gt(randn({20, 30}, {5}), 0.0);
    const LocalTensor blind = logical_and(seen, ne(arange(20), 3).unsqueeze(-1));
    compare_attention({{2, 3}, 20, 30}, {.scale = 0.3, .mask = blind}, dtype, device);
    compare_attention({{2, 3}, 20, 30},
                      {.scale = 0.3, .causal_from = 4, .mask = randn({3, 1, 30}, {6})}, dtype,
                      device);
  }
  compare_large_scores(device);
  expect_gradients_that_cancel(device);
  const LocalTensor x = randn({2, 3, 4}, {1});
  try {
    attention(x.to(device), x, x, {});
    ADD_FAILURE() << "a key on another device";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.summary(), "attention of tensors on " + device.to_string() + " and cpu");
  }
}

}  // namespace dtrun::tensors
