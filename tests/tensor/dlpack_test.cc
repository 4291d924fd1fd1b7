// DLPack both ways: elements are shared, given back once, and what dtrun does not have is named.
#include "dtrun/tensor/dlpack.h"

#include <dlpack/dlpack.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "dtrun/base/error.h"
#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "tensor/all_dtypes.h"
#include "tensor/simulated_devices.h"

namespace dtrun::tensors {
namespace {

/// As another library would make one.
struct Foreign {
  std::vector<float> values = {0, 1, 2, 3, 4, 5};
  std::vector<std::int64_t> shape = {2, 2}, strides = {3, 1};
  int released = 0;
  DLManagedTensor managed{};

  Foreign() {
    managed.dl_tensor = {values.data(),  {kDLCPU, 0},  2, {kDLFloat, 32, 1}, shape.data(),
                         strides.data(), sizeof(float)};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->released;
    };
  }
};

void expect_refused(const std::function<void(DLManagedTensor&)>& change, const std::string& why) {
  Foreign foreign;
  change(foreign.managed);
  try {
    from_dlpack(&foreign.managed);
    FAIL() << "no error: " << why;
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  }
  EXPECT_EQ(foreign.released, 0) << why;
}

TEST(DlpackTest, OthersElementsAreSharedAndGivenBackOnce) {
  Foreign foreign;
  {
    const LocalTensor row = from_dlpack(&foreign.managed).select(0, 1);
    EXPECT_EQ(row.to_vector(), (std::vector<double>{4, 5}));
    row.fill_(9);
    EXPECT_EQ(foreign.released, 0);
  }
  EXPECT_EQ(foreign.released, 1);
  EXPECT_EQ(foreign.values, (std::vector<float>{0, 1, 2, 3, 9, 9}));
}

TEST(DlpackTest, EveryDTypeGoesThereAndBack) {
  for (const DType dtype : kAllDTypes) {
    LocalTensor tensor = arange(6).to(dtype).view({2, 3}).transpose(0, 1);
    const std::vector<double> before = tensor.to_vector();
    DLManagedTensor* const managed = to_dlpack(tensor);
    const void* const data = tensor.data();
    tensor = LocalTensor();  // what was given away keeps the elements
    const LocalTensor back = from_dlpack(managed);
    EXPECT_EQ(back.data(), data);
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.to_vector(), before);
  }
}

TEST(DlpackTest, EmptyAndZeroDimTensorsPass) {
  EXPECT_EQ(from_dlpack(to_dlpack(empty({0, 3}))).shape(), (Shape{0, 3}));
  EXPECT_EQ(from_dlpack(to_dlpack(full({}, 7))).item(), 7);
}

TEST(DlpackTest, AnUnsupportedTensorIsRefusedByNameAndStaysTheCallers) {
  expect_refused([](DLManagedTensor& t) { t.dl_tensor.device.device_type = kDLVulkan; },
                 "on a device of type 7");
  expect_refused(
      [](DLManagedTensor& t) {
        t.dl_tensor.dtype = {kDLComplex, 64, 1};
      },
      "type code 5, 64 bits, 1 lanes");
  expect_refused([](DLManagedTensor& t) { t.dl_tensor.dtype.lanes = 4; }, "4 lanes");
  expect_refused([](DLManagedTensor& t) { t.dl_tensor.strides[0] = -3; }, "the stride -3");
  expect_refused([](DLManagedTensor& t) { t.dl_tensor.shape[1] = -1; }, "of shape [2, -1]");
  expect_refused([](DLManagedTensor& t) { t.dl_tensor.ndim = -1; }, "of -1 dims");
  expect_refused([](DLManagedTensor& t) { t.dl_tensor.data = nullptr; }, "without elements");
  expect_refused([](DLManagedTensor& t) { t.dl_tensor.byte_offset = 2; }, "begin 2 bytes from");
  expect_refused([](DLManagedTensor& t) { t.dl_tensor.shape = nullptr; }, "of 2 dims, no sizes");
  expect_refused(
      [](DLManagedTensor& t) {
        t.dl_tensor.device = {kDLCUDA, -1};
      },
      "on CUDA device -1");
  EXPECT_THROW(from_dlpack(nullptr), base::Error);
}

TEST(DlpackTest, SizesThatNoMemoryHoldsAreRefusedAndNotGivenBack) {
  expect_refused([](DLManagedTensor& t) { t.dl_tensor.strides[0] = std::int64_t{1} << 62; },
                 "strides [4611686018427387904, 1]");
  expect_refused([](DLManagedTensor& t) { t.dl_tensor.shape[0] = std::int64_t{1} << 61; },
                 "of shape [2305843009213693952, 2]");
  expect_refused(
      [](DLManagedTensor& t) {
        t.dl_tensor.shape[0] = t.dl_tensor.shape[1] = std::int64_t{1} << 32;
        t.dl_tensor.strides = nullptr;
      },
      "more elements than 63 bits count");
}

// --- CUDA devices, of which the simulation has two.

class DlpackOnDevicesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no devices";
    devices_ = std::make_unique<cuda::SimulatedDevices>();
  }
  static Device gpu(int index) { return {DeviceType::cuda, index}; }

 private:
  std::unique_ptr<cuda::SimulatedDevices> devices_;
};

TEST_F(DlpackOnDevicesTest, ATensorOfADeviceGoesThereAndBack) {
  for (const int index : {0, 1}) {
    LocalTensor tensor = arange(6).to(gpu(index)).view({2, 3}).transpose(0, 1);
    const void* const data = tensor.data();
    DLManagedTensor* const managed = to_dlpack(tensor);
    EXPECT_EQ(managed->dl_tensor.device.device_type, kDLCUDA);
    EXPECT_EQ(managed->dl_tensor.device.device_id, index);
    EXPECT_EQ(managed->dl_tensor.data, data);
    tensor = LocalTensor();  // what was given away keeps the elements
    const LocalTensor back = from_dlpack(managed);
    EXPECT_EQ(back.data(), data);
    EXPECT_EQ(back.device(), gpu(index));
    EXPECT_EQ(add(back, 1).to(kCpu).to_vector(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  }
}

TEST_F(DlpackOnDevicesTest, OthersElementsOnADeviceAreSharedAndGivenBackOnce) {
  for (const DLDeviceType type : {kDLCUDA, kDLCUDAManaged}) {
    Foreign foreign;
    const LocalTensor memory = arange(6).to(DType::f32).to(gpu(1));
    foreign.managed.dl_tensor.data = memory.data();
    foreign.managed.dl_tensor.device = {type, 1};
    {
      const LocalTensor row = from_dlpack(&foreign.managed).select(0, 1);
      EXPECT_EQ(row.device(), gpu(1));
      EXPECT_EQ(row.to(kCpu).to_vector(), (std::vector<double>{4, 5}));
      row.fill_(9);
      EXPECT_EQ(foreign.released, 0);
    }
    EXPECT_EQ(foreign.released, 1);
    EXPECT_EQ(memory.to(kCpu).to_vector(), (std::vector<double>{0, 1, 2, 3, 9, 9}));
  }
}

TEST_F(DlpackOnDevicesTest, PinnedMemoryIsTheHosts) {
  Foreign foreign;
  foreign.managed.dl_tensor.device = {kDLCUDAHost, 0};
  const LocalTensor tensor = from_dlpack(&foreign.managed);
  EXPECT_TRUE(tensor.device().is_cpu());
  EXPECT_EQ(tensor.to_vector(), (std::vector<double>{1, 2, 4, 5}));
}

TEST_F(DlpackOnDevicesTest, ADeviceThatIsNotHereIsRefused) {
  expect_refused(
      [](DLManagedTensor& t) {
        t.dl_tensor.device = {kDLCUDA, 2};
      },
      "of shape [2, 2] on CUDA device 2");
  expect_refused(
      [](DLManagedTensor& t) {
        t.dl_tensor.device = {kDLCUDAManaged, 9};
      },
      "this process has CUDA devices 0 to 1");
}

TEST(DlpackTest, WithoutDevicesOneIsRefused) {
  if (cuda::device_count() > 0) GTEST_SKIP() << "this machine has a CUDA device";
  expect_refused(
      [](DLManagedTensor& t) {
        t.dl_tensor.device = {kDLCUDA, 0};
      },
      "this process has no CUDA device");
}

}  // namespace
}  // namespace dtrun::tensors
