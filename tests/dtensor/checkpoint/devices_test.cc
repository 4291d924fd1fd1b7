// Tensors on CUDA devices in checkpoints. The devices are simulated: what is queued on them runs
// when somebody waits for it, so a copy that is looked at too early is seen.
#include <gtest/gtest.h>

#include "dtensor/checkpoint/own_folder.h"
#include "dtrun/dtensor/checkpoint/async_saver.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"
#include "tensor/simulated_devices.h"

namespace dtrun::dtensor::dcp {
namespace {

using collectives::ProcessGroup;
using tensors::LocalTensor;

constexpr tensors::Device kFirst{tensors::DeviceType::cuda, 0},
    kSecond{tensors::DeviceType::cuda, 1};

class CheckpointDevicesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  }
  const tensors::cuda::SimulatedDevices devices_;
  const OwnFolder own_;
};

/// Of more bytes than a block.
Tensor numbers_on(tensors::Device device, double first, DType dtype = DType::f32) {
  const LocalTensor numbers = tensors::arange(300'001, {.dtype = dtype}).to(device);
  return Tensor(tensors::add(numbers, tensors::full({}, first, {dtype, device})));
}
void expect_numbers(const Tensor& tensor, double first) {
  const std::vector<double> found = tensor.to_vector();
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(found[i], first + static_cast<double>(i)) << "element " << i;
}

TEST_F(CheckpointDevicesTest, WhatIsSavedOfADeviceIsLoadedToAnyOther) {
  const Tensor x = numbers_on(kFirst, 3), y = numbers_on(kSecond, 5, DType::f64);
  save(own_ / "a", {{"x", x}, {"y", y}});
  for (const tensors::Device device : {tensors::kCpu, kFirst, kSecond}) {
    const Tensor to_x = numbers_on(device, 0), to_y = numbers_on(device, 0);
    load(own_ / "a", {{"x", to_x}, {"y", to_y}});
    EXPECT_EQ(to_x.device(), device);
    expect_numbers(to_x, 3);
    expect_numbers(to_y, 5);
  }
  // Of the CPU to a device.
  save(own_ / "b", {{"x", numbers_on(tensors::kCpu, 7)}});
  load(own_ / "b", {{"x", x}});
  expect_numbers(x, 7);
}

TEST_F(CheckpointDevicesTest, ACopyOfADeviceIsMadeBeforeTheNextStepWritesThere) {
  AsyncSaver saver(rendezvous::make_hash_store(), 0, 1);
  for (const Staging staging : {Staging::at_once, Staging::in_background}) {
    const std::string folder = own_ / (staging == Staging::at_once ? "now" : "later");
    const Tensor x = numbers_on(kFirst, 3), y = numbers_on(kSecond, 5);
    const Tensor host = numbers_on(tensors::kCpu, 9);
    saver.save(folder, {{"x", x}, {"y", y}, {"host", host}}, {.staging = staging});
    // Tensors on devices are copied at once, in either case.
    x.fill_(-1);
    y.fill_(-1);
    saver.wait_staged();
    host.fill_(-1);
    EXPECT_TRUE(saver.wait().has_value());
    load(folder, {{"x", y}, {"y", x}, {"host", host}});
    expect_numbers(y, 3);
    expect_numbers(x, 5);
    expect_numbers(host, 9);
  }
}

TEST_F(CheckpointDevicesTest, ShardsOnDevicesOfTwoRanksBecomeAnyOthers) {
  const LocalTensor whole = tensors::arange(600 * 1031, {.dtype = DType::f32}).reshape({600, 1031});
  const auto part_on = [&](const Spec& spec, tensors::Device device) {
    LocalTensor part = whole;
    for (int dim = 0; dim < 2; ++dim)
      part = part.narrow(dim, spec.local_box().offsets[static_cast<std::size_t>(dim)],
                         spec.local_box().shape[static_cast<std::size_t>(dim)]);
    return Tensor(spec, part.contiguous().to(device));
  };
  const auto device_of_rank = [](const ProcessGroup& group) {
    return tensors::Device{tensors::DeviceType::cuda, group.rank()};
  };
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Spec spec = make_spec(mesh, {Shard(0)}, whole.shape(), DType::f32);
    save(own_ / "a", {{"x", part_on(spec, device_of_rank(group))}}, {.group = group});
  });
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    for (const Placement& placement : Placements{Shard(0), Shard(1), Replicate()}) {
      const Spec spec = make_spec(mesh, {placement}, whole.shape(), DType::f32);
      const Tensor wanted = part_on(spec, tensors::kCpu);
      const Tensor found(
          spec, tensors::zeros(spec.local_box().shape, {DType::f32, device_of_rank(group)}));
      load(own_ / "a", {{"x", found}}, {.group = group});
      EXPECT_EQ(found.local().device(), device_of_rank(group));
      EXPECT_TRUE(tensors::equal(found.local().to(tensors::kCpu), wanted.local()))
          << spec.to_string();
    }
  });
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
