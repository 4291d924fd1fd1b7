// DLPack both ways: elements are shared, given back once, and what dtrun does not have is named.
#include "dtrun/tensor/dlpack.h"

#include <dlpack/dlpack.h>
#include <gtest/gtest.h>

#include "dtrun/base/error.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "tensor/all_dtypes.h"

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

}  // namespace
}  // namespace dtrun::tensors
