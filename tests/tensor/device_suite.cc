#include "tensor/device_suite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cuda/kernels.h"
#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/ops.h"
#include "tensor/device_comparison.h"

namespace dtrun::tensors {

void expect_creation_as_on_host(Device device) {
  for (const DType dtype : kAllDTypes) {
    const std::string what(dtype_name(dtype));
    const TensorOptions here{.dtype = dtype};
    const TensorOptions there{dtype, device};
    for (const std::int64_t size : {0, 1, 3, 16, 17, 1000}) {
      expect_same(full({size}, 3, there), full({size}, 3, here), device, "full " + what);
      if (dtype == DType::boolean) continue;
      expect_same(arange(size, there), arange(size, here), device, "arange " + what);
    }
    expect_same(zeros({2, 3}, there), zeros({2, 3}, here), device, "zeros " + what);
    if (dtype != DType::boolean)
      expect_same(arange(0.5, 9, 1.7, there), arange(0.5, 9, 1.7, here), device, "steps " + what);
    expect_same(randn({5, 7}, {3, 4}, there), randn({5, 7}, {3, 4}, here), device, "randn " + what);
    expect_same(randn_block({6, 5, 8}, {1, 2, 3}, {3, 2, 4}, {9, 1}, there),
                randn_block({6, 5, 8}, {1, 2, 3}, {3, 2, 4}, {9, 1}, here), device,
                "block " + what);
    const LocalTensor holes = numbers({4, 6}, dtype, 1);
    const LocalTensor remote = holes.to(device);
    holes.transpose(0, 1).slice(0, 1, 6, 2).fill_(1);
    remote.transpose(0, 1).slice(0, 1, 6, 2).fill_(1);
    expect_same(remote, holes, device, "strided fill " + what);
  }
  expect_same(randn({100000}, {1, 2}, {DType::f64, device}), randn({100000}, {1, 2}, {DType::f64}),
              device, "many normal numbers");
  expect_same(randn({}, {1, 2}, {DType::f32, device}), randn({}, {1, 2}), device, "one number");
  EXPECT_EQ(randn({0, 3}, {1, 2}, {DType::f32, device}).numel(), 0);
  EXPECT_EQ(randn(Shape(13, 1), {1, 2}, {DType::f32, device}).numel(), 1);
}

void expect_copies_as_on_host(Device device) {
  for (const DType dtype : kAllDTypes) {
    for (const LocalTensor& host : layouts_of(dtype, 7)) {
      const LocalTensor remote = like(host, device);
      expect_same(remote, host, device, "view");
      expect_same(remote.contiguous(), host.contiguous(), device, "contiguous");
      expect_same(host.to(device), host, device, "to a device");
      expect_same(remote.to(kCpu), host, kCpu, "to the host");
      const LocalTensor target = zeros({6, 4}, {dtype, device});
      target.transpose(0, 1).copy_(remote);
      expect_same(target.transpose(0, 1), host, device, "copy to a transposed view");
      target.transpose(0, 1).copy_(host);
      expect_same(target.transpose(0, 1), host, device, "copy from the host");
    }
  }
  const LocalTensor overlapping = arange(8).to(device);
  overlapping.slice(0, 1, 8).copy_(overlapping.slice(0, 0, 7));
  expect_same(overlapping,
              tensor_from(std::vector<double>{0, 0, 1, 2, 3, 4, 5, 6}, {8}, DType::i64), device,
              "overlap");
  LocalTensor deep = arange(1 << 13).view(Shape(13, 2));
  std::vector<int> reversed;
  for (int d = 12; d >= 0; --d) reversed.push_back(d);
  EXPECT_ANY_THROW(deep.to(device).permute(reversed).clone());
  expect_same(deep.to(device), deep, device, "thirteen dims in one run");
}

void expect_conversions_as_on_host(Device device) {
  for (const DType from : kAllDTypes) {
    for (const DType to : kAllDTypes) {
      for (const LocalTensor& host : layouts_of(from, 11)) {
        expect_same(like(host, device).to(to), host.to(to), device,
                    std::string(dtype_name(from)) + " to " + std::string(dtype_name(to)));
      }
      const LocalTensor host = numbers({1003}, from, 3);
      expect_same(host.to(device).to(to), host.to(to), device, "in groups");
      const LocalTensor target = zeros({5}, {to, device});
      target.copy_(numbers({5}, from, 5));
      expect_same(target, numbers({5}, from, 5).to(to), device, "copy_ converts");
    }
  }
  const LocalTensor special =
      tensor_from(std::vector<double>{1e300, -1e300, 5e-324, 65504, 65520, 2e-8, -0.0, INFINITY,
                                      -INFINITY, NAN, 3e9, -3e9, 1e19, 0.5, -0.5, 255.9, 256.1},
                  {17}, DType::f64);
  for (const DType to : kAllDTypes) {
    expect_same(special.to(device).to(to), special.to(to), device, "special values");
    expect_same(special.to(DType::f32).to(device).to(to), special.to(DType::f32).to(to), device,
                "special values of f32");
  }
}

void expect_pointwise_as_on_host(Device device) {
  for (const DType dtype : kAllDTypes) {
    const std::string what(dtype_name(dtype));
    const std::vector<LocalTensor> left = layouts_of(dtype, 21);
    const std::vector<LocalTensor> right = layouts_of(dtype, 51);
    for (std::size_t i = 0; i < left.size(); ++i) {
      for (std::size_t k = 0; k < right.size(); ++k) {
        const LocalTensor a = like(left[i], device);
        const LocalTensor b = like(right[k], device);
        expect_same(a + b, left[i] + right[k], device, "add " + what);
        expect_same(a * b, left[i] * right[k], device, "mul " + what);
        expect_same(a / b, left[i] / right[k], device, "div " + what);
        if (dtype != DType::boolean) expect_same(a - b, left[i] - right[k], device, "sub " + what);
      }
    }
    for (const std::int64_t size : {1, 15, 16, 17, 4099}) {
      const LocalTensor a = numbers({size}, dtype, 5);
      const LocalTensor b = numbers({size}, dtype, 6);
      expect_same(a.to(device) + b.to(device), a + b, device, "runs " + what);
      expect_same(a.to(device) * 3, a * 3, device, "number " + what);
      expect_same(2.5 / a.to(device), 2.5 / a, device, "left number " + what);
    }
  }
  const LocalTensor number = tensor_from(std::vector<double>{2}, {}, DType::f32);
  expect_same(ones({3}, {DType::f32, device}) * number, ones({3}) * number, device, "0-dim of cpu");
  EXPECT_ANY_THROW(ones({3}, {DType::f32, device}) * ones({3}));
  EXPECT_EQ((zeros({0, 2}, {DType::f32, device}) + zeros({0, 2}, {DType::f32, device})).numel(), 0);
}

void expect_sums_as_on_host(Device device) {
  for (const DType dtype : kAllDTypes) {
    const std::string what = "sum " + std::string(dtype_name(dtype));
    for (const std::int64_t size :
         {0, 1, 15, 16, 17, 64, 65, 1023, 1024, 1025, 2048, 3073, 5000, 33 * 1024 + 5, 100000}) {
      const LocalTensor a = numbers({size}, dtype, 8);
      expect_same(sum(a.to(device)), sum(a), device, what + std::to_string(size));
    }
    const LocalTensor cube = numbers({3, 70, 5}, dtype, 2);
    for (const std::vector<int>& dims : std::vector<std::vector<int>>{{0}, {1}, {2}, {0, 2}, {}}) {
      expect_same(sum(cube.to(device), dims), sum(cube, dims), device, what);
      expect_same(sum(cube.to(device).transpose(0, 1), dims, true),
                  sum(cube.transpose(0, 1), dims, true), device, what + " kept");
    }
    const LocalTensor rows = numbers({3, 70000}, dtype, 4);
    expect_same(sum(rows.to(device), {1}), sum(rows, {1}), device, what + " of rows");
    expect_same(sum(zeros({0, 3}, {dtype, device}), {0}), sum(zeros({0, 3}, {dtype}), {0}), device,
                what + " of nothing");
    const LocalTensor copy = rows.clone().to(device);
    EXPECT_TRUE(equal(copy, rows.to(device)));
    copy.select(0, 2).slice(0, 69999, 70000).copy_(full({1}, 77, {dtype}));
    rows.select(0, 2).slice(0, 69999, 70000).fill_(0);
    EXPECT_FALSE(equal(copy, rows.to(device))) << what;
  }
  EXPECT_FALSE(equal(full({2}, NAN, {DType::f32, device}), full({2}, NAN, {DType::f32, device})));
  EXPECT_TRUE(equal(zeros({0}, {DType::f32, device}), zeros({0}, {DType::f32, device})));
}

void expect_products_as_on_host(Device device) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{3}, {3}},       {{2, 3}, {3}},       {{3}, {3, 2}},          {{5, 1}, {1, 6}},
      {{1, 7}, {7, 1}}, {{2, 2, 3}, {3, 4}}, {{4, 2, 3}, {4, 3, 2}}, {{2, 1, 2, 3}, {3, 3, 2}},
      {{2, 0}, {0, 4}}, {{0, 3}, {3, 4}},    {{17, 70}, {70, 9}}};
  for (const DType dtype : kAllDTypes) {
    if (dtype == DType::boolean) continue;
    for (const auto& [a_shape, b_shape] : shapes) {
      // Small whole numbers: exact in every dtype and order.
      const LocalTensor a = (arange(numel(a_shape)) * 0 + 2).view(a_shape).to(dtype) +
                            numbers(a_shape, DType::boolean, 3).to(dtype);
      const LocalTensor b = numbers(b_shape, DType::boolean, 4).to(dtype);
      const std::string what = std::string(dtype_name(dtype)) + " " + shape_to_string(a_shape) +
                               " @ " + shape_to_string(b_shape);
      expect_same(matmul(a.to(device), b.to(device)), matmul(a, b), device, what);
      if (a_shape.size() < 2 || b_shape.size() < 2) continue;
      const LocalTensor turned_a = a.transpose(-1, -2).contiguous().transpose(-1, -2);
      const LocalTensor turned_b = b.transpose(-1, -2).contiguous().transpose(-1, -2);
      expect_same(matmul(like(turned_a, device), like(turned_b, device)), matmul(a, b), device,
                  "transposed " + what);
    }
  }
}

void expect_combinations_as_on_host(Device device) {
  const cuda::Stream stream = cuda::current_stream(device.index);
  for (const DType dtype : kAllDTypes) {
    for (const CombineOp op : {CombineOp::sum, CombineOp::product, CombineOp::min, CombineOp::max,
                               CombineOp::band, CombineOp::bor, CombineOp::bxor}) {
      if (!combine_supports(op, dtype)) continue;
      for (const std::int64_t offset : {0, 1}) {
        const LocalTensor left = numbers({1004}, dtype, 1).slice(0, offset, 1004);
        const LocalTensor right = numbers({1004}, dtype, 2).slice(0, offset, 1004);
        const LocalTensor a = like(left, device);
        cuda::enqueue_combine(op, dtype, a.data(), like(right, device).data(), a.numel(), stream);
        combine(op, dtype, left.data(), right.data(), left.numel());
        expect_same(a, left, device, std::string(combine_op_name(op)));
      }
    }
    if (dtype == DType::boolean) continue;
    const LocalTensor shares = numbers({100}, dtype, 1);
    const LocalTensor remote = shares.to(device);
    cuda::enqueue_divide(dtype, remote.data(), 100, 3, stream);
    divide(dtype, shares.data(), 100, 3);
    expect_same(remote, shares, device, "divide");
  }
}

void expect_joining_as_on_host(Device device) {
  const LocalTensor a = numbers({4, 6}, DType::f32, 1);
  const LocalTensor remote = a.to(device);
  for (const int dim : {0, 1}) {
    expect_same(cat(split(remote, 3, dim), dim), a, device, "cat");
    expect_same(stack({remote, remote}, dim), stack({a, a}, dim), device, "stack");
    EXPECT_EQ(chunk(remote, 4, dim)[1].to_vector(), chunk(a, 4, dim)[1].to_vector());
  }
  expect_same(cat({remote, remote.to(DType::f64)}), cat({a, a.to(DType::f64)}), device, "promoted");
  EXPECT_EQ(remote[2][3].item(), a[2][3].item());
  EXPECT_EQ(remote.reshape({3, 8}).to_vector(), a.to_vector());
}

void expect_ordered_streams(Device device) {
  const cuda::Stream producer = cuda::Stream::from_pool(device.index);
  const cuda::Stream consumer = cuda::Stream::from_pool(device.index);
  ASSERT_NE(producer, consumer);
  for (int round = 0; round < 20; ++round) {
    LocalTensor made;
    LocalTensor used;
    {
      const cuda::StreamGuard guard(producer);
      made = full({1 << 16}, round, {DType::f32, device});
      for (int k = 0; k < 10; ++k) made = made + 1.0;
    }
    consumer.wait(producer);
    {
      const cuda::StreamGuard guard(consumer);
      used = made * 2.0;
      cuda::record_stream(made, consumer);
    }
    made = LocalTensor();  // may not be reused before the consumer has read it
    {
      const cuda::StreamGuard guard(producer);
      made = full({1 << 16}, -1, {DType::f32, device});
    }
    const cuda::StreamGuard guard(consumer);
    EXPECT_EQ(sum(used).item(), 2.0 * (round + 10) * (1 << 16));
  }
  producer.synchronize();
  EXPECT_TRUE(producer.is_idle());
}

}  // namespace dtrun::tensors
