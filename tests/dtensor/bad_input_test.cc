// What a program gets wrong with tensors: each is a named error that says what was called with
// which arguments, why that does not go, and what to try. Nothing aborts, and the program goes on.
#include <gtest/gtest.h>

#include <dlpack/dlpack.h>

#include <filesystem>
#include <fstream>

#include "dtensor/explained.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/tensor/cuda.h"
#include "support/rank_threads.h"
#include "tensor/simulated_devices.h"

namespace dtrun::dtensor {
namespace {

/// On ranks that are threads, each in step with the others afterwards.
void on_two_ranks(const std::function<void(const DeviceMesh& mesh)>& calls) {
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    calls(mesh);
    EXPECT_EQ(sum(ones({4}, mesh, {Shard(0)})).item(), 4);
  });
}

TEST(BadInputTest, MixedMeshes) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh line(group, {2}, {"dp"}), square(group, {2, 1}, {"dp", "tp"});
    const Tensor a = ones({4, 2}, line, {Shard(0)});
    const Tensor b = ones({4, 2}, square, {Shard(0), Replicate()});
    expect_explained([&] { a + b; }, {"add", "different meshes", "f32[4, 2]", "S(0)", "dp", "tp"});
    EXPECT_EQ(sum(a).item(), 8);
  });
}

TEST(BadInputTest, ALocalTensorOfManyElementsWithADistributedOne) {
  on_two_ranks([](const DeviceMesh& mesh) {
    const Tensor distributed = ones({4, 2}, mesh, {Shard(0)}), local = ones({4, 2});
    const Words words = {"[4, 2]", "S(0)", "a local tensor", "one element", "distribute_tensor()"};
    expect_explained([&] { distributed + local; }, words);
    expect_explained([&] { local* distributed; }, words);
    expect_explained([&] { where(gt(local, 0), distributed, distributed); }, words);
    expect_explained([&] { cat({distributed, local}); }, words);
    expect_explained([&] { matmul(distributed, ones({2, 2})); }, {"matmul", "[2, 2]", "S(0)"});
    expect_explained([&] { distributed.copy_(local); }, {"copy_", "[4, 2]", "S(0)"});
    EXPECT_EQ(sum(distributed + ones({1, 1})).item(), 16);
  });
}

TEST(BadInputTest, DtypesThatDoNotGoTogether) {
  const auto of = [](const Tensor& single, const Tensor& twice) {
    expect_explained([&] { matmul(single, twice); }, {"matmul", "32", "64", "[2, 2]"});
    expect_explained([&] { lerp(single, twice, 0.5); }, {"lerp", "32", "64"});
  };
  of(ones({2, 2}), ones({2, 2}, {.dtype = DType::f64}));
  on_two_ranks([&](const DeviceMesh& mesh) {
    of(ones({2, 2}, mesh, {Shard(0)}), ones({2, 2}, mesh, {Shard(0)}, DType::f64));
  });
}

TEST(BadInputTest, ShapesThatDoNotBroadcast) {
  expect_explained([] { ones({2, 3}) + ones({4}); }, {"add", "[2, 3]", "[4]", "broadcast"});
  on_two_ranks([](const DeviceMesh& mesh) {
    expect_explained(
        [&] {
          ones({2, 3}, mesh, {Shard(0)}) * ones({4}, mesh, {Replicate()});
        },
        {"mul", "[2, 3]", "[4]", "S(0)"});
  });
}

TEST(BadInputTest, DimsOutOfRange) {
  const auto of = [](const Tensor& x) {
    expect_explained([&] { sum(x, {2}); }, {"sum", "dim 2", "[2, 3]"});
    expect_explained([&] { x.transpose(0, -3); }, {"transpose", "dim -3", "[2, 3]"});
    expect_explained([&] { cumsum(x, 5); }, {"cumsum", "dim 5", "[2, 3]"});
    expect_explained([&] { cat({x, x}, 2); }, {"cat", "dim 2", "[2, 3]"});
  };
  of(ones({2, 3}));
  on_two_ranks([&](const DeviceMesh& mesh) { of(ones({2, 3}, mesh, {Shard(0)})); });
}

/// What the error says first.
std::string summary_of(const std::function<void()>& call) {
  try {
    call();
    return "no error";
  } catch (const base::Error& error) {
    return error.summary();
  }
}

TEST(BadInputTest, WhatIsMadeOfOtherOperatorsIsToldByItsOwnName) {
  const Tensor x = ones({2, 3}), beyond = tensor({1, 4});
  const auto told = summary_of;
  EXPECT_EQ(told([&] {
              linear(x, ones({4, 5}));
            }),
            "linear of input f32[2, 3] and weight f32[4, 5]");
  EXPECT_EQ(told([&] {
              linear(x, ones({4, 3}), ones(5));
            }),
            "linear of input f32[2, 3], weight f32[4, 3] and bias f32[5]");
  EXPECT_EQ(told([&] { mse_loss(x, ones(4)); }), "mse_loss of input f32[2, 3] and target f32[4]");
  EXPECT_EQ(told([&] { embedding(beyond, x); }),
            "embedding of positions i64[2] and table f32[2, 3]");
  EXPECT_EQ(told([&] { stack({x, x}, 7); }), "stack of f32[2, 3], f32[2, 3]");
  EXPECT_EQ(told([&] { x.add_(ones(4)); }), "add_ of f32[2, 3] and f32[4]");
  EXPECT_EQ(told([&] { x.select(0, 5); }), "select of f32[2, 3]");
  EXPECT_EQ(told([&] { mse_loss(x, Tensor()); }),
            "mse_loss was given an undefined tensor as its target");
  EXPECT_EQ(told([&] { clamp(x, Tensor(), ones(4)); }), "clamp of input f32[2, 3] and high f32[4]");
  EXPECT_EQ(told([&] { x.view_as(ones(4)); }), "view_as of input f32[2, 3] and other f32[4]");
  EXPECT_EQ(told([&] { x.index_put_({ones(2)}, ones(3)); }),
            "index_put_ of tensor f32[2, 3], positions f32[2] and values f32[3]");
  EXPECT_EQ(told([&] {
              cat({zeros({0}), Tensor()});
            }),
            "cat was given an undefined tensor as argument 2");
  on_two_ranks([&](const DeviceMesh& mesh) {
    const Tensor cut = ones({2, 3}, mesh, {Shard(0)});
    EXPECT_EQ(told([&] { mse_loss(cut, ones({4}, mesh, {Replicate()})); }),
              "mse_loss of input f32[2, 3] on (2): [S(0)] and target f32[4] on (2): [R]");
  });
}

TEST(BadInputTest, NegativeSizes) {
  expect_explained([] { zeros({2, -1}); }, {"[2, -1]", "negative"});
  expect_explained([] { arange(-3); }, {"arange", "-3"});
  expect_explained([] { ones({2, 3}).view({-2, 3}); }, {"[-2, 3]"});
  on_two_ranks([](const DeviceMesh& mesh) {
    expect_explained([&] { zeros({2, -1}, mesh, {Shard(0)}); }, {"[2, -1]", "negative"});
  });
}

TEST(BadInputTest, AnIndexOutOfBounds) {
  const auto of = [](const Tensor& x, const Tensor& beyond) {
    expect_explained([&] { index_select(x, 0, beyond); },
                     {"index_select", "position 1", "is 4", "[3, 2]", "[2]"});
    expect_explained([&] { index(x, beyond); }, {"index", "position 1", "is 4", "[3, 2]", "[2]"});
    expect_explained([&] { index_add(x, 0, beyond, x.narrow(0, 0, 2)); },
                     {"index_add", "is 4", "[3, 2]", "[2]"});
  };
  const Tensor beyond = tensor({1, 4});
  of(ones({3, 2}), beyond);
  expect_explained([] { ones({3, 2}).select(0, 3); }, {"index 3", "dim 0", "[3, 2]"});
  on_two_ranks([&](const DeviceMesh& mesh) {
    const Tensor positions = distribute_tensor(beyond, mesh, {Replicate()}, {.source_rank = -1});
    of(ones({3, 2}, mesh, {Replicate()}), positions);
    const Tensor cut = ones({3, 2}, mesh, {Shard(1)});
    expect_explained([&] { index_select(cut, 0, positions); }, {"index_select", "is 4", "S(1)"});
    expect_explained([&] { index(cut, positions); }, {"index", "is 4", "f32[3, 2]", "S(1)"});
  });
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const tensors::cuda::SimulatedDevices simulated;
  const Device gpu{tensors::DeviceType::cuda, 0};
  const Tensor x = ones({3, 2}).to(gpu);
  of(x, beyond.to(gpu));
  EXPECT_EQ(sum(x).item(), 6);  // the device is not lost by it
}

TEST(BadInputTest, MoreDimsThanACudaKernelWalksOver) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const tensors::cuda::SimulatedDevices simulated;
  std::vector<int> order;
  for (int d = 13; d-- > 0;) order.push_back(d);
  const Tensor x = ones(Shape(13, 2)).to(Device{tensors::DeviceType::cuda, 0});
  const Tensor turned = x.permute(order);
  expect_explained([&] { add(x, turned); }, {"in add of", "[2, 2, 2, 2,", "12 dims", "fewer dims"});
  expect_explained([&] { exp(turned); }, {"in exp of", "[2, 2, 2, 2,", "12 dims", "fewer dims"});
  EXPECT_EQ(sum(x).item(), 8192);
}

TEST(BadInputTest, BackwardOfWhatIsNoNumber) {
  const Tensor x = ones({3}).requires_grad_();
  expect_explained([&] { (x * 2.0).backward(); }, {"backward", "f32[3]", "one element"});
  on_two_ranks([](const DeviceMesh& mesh) {
    const Tensor cut = ones({3}, mesh, {Shard(0)}).requires_grad_();
    expect_explained([&] { (cut * 2.0).backward(); },
                     {"backward", "f32[3]", "S(0)", "one element"});
  });
}

TEST(BadInputTest, BackwardTwice) {
  const Tensor x = ones({3}).requires_grad_();
  const Tensor loss = sum(x * x);
  loss.backward();
  expect_explained([&] { loss.backward(); },
                   {"backward", "mul of f32[3] and f32[3]", "a second time", "retain_graph"});
  on_two_ranks([](const DeviceMesh& mesh) {
    const Tensor cut = ones({3}, mesh, {Shard(0)}).requires_grad_();
    const Tensor total = sum(cut * cut);
    total.backward();
    expect_explained([&] { total.backward(); },
                     {"backward", "mul of", "f32[3]", "S(0)", "a second time", "retain_graph"});
  });
}

TEST(BadInputTest, InPlaceOnALeaf) {
  const Tensor x = ones({3}).requires_grad_();
  expect_explained([&] { x.add_(1); }, {"add_", "a leaf", "f32[3]", "NoGrad"});
  expect_explained([&] { x[0] = 1; }, {"[]", "view"});
  EXPECT_EQ(x.to_vector(), std::vector<double>(3, 1));
  on_two_ranks([](const DeviceMesh& mesh) {
    const Tensor cut = ones({3}, mesh, {Shard(0)}).requires_grad_();
    expect_explained([&] { cut.add_(1); }, {"add_", "a leaf", "f32[3]", "S(0)", "NoGrad"});
    const Tensor part = cut.view({3, 1});
    expect_explained([&] { part.mul_(2); }, {"mul_", "a view", "f32[3, 1]", "S(0)", "clone()"});
    EXPECT_EQ(cut.to_vector(), std::vector<double>(3, 1));
  });
}

/// Where the text stands in the file.
std::streamoff offset_of(const std::string& path, const std::string& text) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  return static_cast<std::streamoff>(bytes.find(text));
}

TEST(BadInputTest, AnNpyFileThatIsCutShortOrLies) {
  const std::string path = testing::TempDir() + "/bad_input.npy";
  save_npy(path, ones({4, 2}));
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 5);
  expect_explained([&] { load_npy(path); }, {"bad_input.npy", "27 bytes", "[4, 2]", "32"});
  save_npy(path, ones({4, 2}));
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
          .seekp(offset_of(path, "(4, 2)"))
      << "(9, 2)";
  expect_explained([&] { load_npy(path); }, {"bad_input.npy", "32 bytes", "[9, 2]", "72"});
  std::filesystem::resize_file(path, 20);
  expect_explained([&] { load_npy(path); }, {"bad_input.npy", "ends within its header"});
  std::filesystem::remove(path);
}

TEST(BadInputTest, ADlpackTensorOfAnUnknownDevice) {
  DLManagedTensor* const managed = to_dlpack(ones({2}));
  managed->dl_tensor.device.device_type = kDLVulkan;
  expect_explained([&] { from_dlpack(managed); }, {"[2]", "device of type 7", "CPU"});
  managed->deleter(managed);
}

}  // namespace
}  // namespace dtrun::dtensor
