#include "dtrun/tensor/dtype.h"

#include <gtest/gtest.h>

#include "dtrun/base/error.h"
#include "dtrun/tensor/device.h"
#include "dtrun/tensor/result_type.h"
#include "tensor/all_dtypes.h"

namespace dtrun::tensors {
namespace {

TEST(DTypeTest, BothNamesOfEachParseToIt) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
    EXPECT_EQ(parse_dtype(dtype_short_name(dtype)), dtype);
  }
  EXPECT_THROW(parse_dtype("float8"), base::Error);
}

TEST(DTypeTest, SizesAreThoseOfTheTypes) {
  EXPECT_EQ(item_size(DType::f64), 8u);
  EXPECT_EQ(item_size(DType::bf16), 2u);
  EXPECT_EQ(item_size(DType::i16), 2u);
  EXPECT_EQ(item_size(DType::i8), 1u);
  EXPECT_EQ(item_size(DType::boolean), 1u);
}

TEST(DTypeTest, PromotionIsSymmetricAndKeepsEqualTypes) {
  for (const DType a : kAllDTypes) {
    EXPECT_EQ(promote_types(a, a), a);
    for (const DType b : kAllDTypes) EXPECT_EQ(promote_types(a, b), promote_types(b, a));
  }
  EXPECT_EQ(promote_types(DType::f16, DType::bf16), DType::f32);
  EXPECT_EQ(promote_types(DType::i64, DType::f16), DType::f16);
  EXPECT_EQ(promote_types(DType::u8, DType::boolean), DType::u8);
  EXPECT_EQ(promote_types(DType::u8, DType::i8), DType::i16);
  EXPECT_EQ(promote_types(DType::u8, DType::i16), DType::i16);
}

/// torch.result_type of PyTorch 2.15. Rows: each of kAllDTypes with dims, then without.
/// Columns: the same, then 2.0, 2 and True.
constexpr const char* kResultTypes[] = {
    "ddddddddddddddddddddddd", "dffffffffffffffffffffff", "dfhfhhhhhhhhhhhhhhhhhhh",
    "dffbbbbbbbbbbbbbbbbbbbb", "dfhblllllldfhbllllllfll", "dfhbliiiiidfhbiiiiiifii",
    "dfhblissssdfhbssssssfss", "dfhblisysydfhbyyyyyyfyy", "dfhblissuudfhbuuuuuufuu",
    "dfhblisyu?dfhblisyu?fl?", "dfhbddddddddddddddddddd", "dfhbffffffdffffffffffff",
    "dfhbhhhhhhdfhfhhhhhhhhh", "dfhbbbbbbbdffbbbbbbbbbb", "dfhblisyuldfhbllllllfll",
    "dfhblisyuidfhbliiiiifii", "dfhblisyusdfhblissssfss", "dfhblisyuydfhblisysyfyy",
    "dfhblisyuudfhblissuufuu", "dfhblisyu?dfhblisyu?fl?"};

TEST(DTypeTest, TheResultOfTwoOperandsIsPyTorchs) {
  const std::string_view letters = "dfhblisyu?";
  std::vector<TypedOperand> operands;
  for (const DType dtype : kAllDTypes) operands.emplace_back(dtype, Shape{2});
  for (const DType dtype : kAllDTypes) operands.emplace_back(dtype, Shape{});
  for (const Scalar number : {Scalar(2.0), Scalar(2), Scalar(true)}) operands.emplace_back(number);
  for (std::size_t a = 0; a < std::size(kResultTypes); ++a) {
    for (std::size_t b = 0; b < operands.size(); ++b) {
      const DType expected = kAllDTypes[letters.find(kResultTypes[a][b])];
      EXPECT_EQ(result_type(operands[a], operands[b]), expected) << a << " with " << b;
      EXPECT_EQ(result_type(operands[b], operands[a]), expected) << b << " with " << a;
    }
  }
}

TEST(DeviceTest, ParsesWhatItPrints) {
  EXPECT_EQ(Device::parse("cpu"), kCpu);
  EXPECT_EQ(Device::parse("cuda"), (Device{DeviceType::cuda, 0}));
  EXPECT_EQ(Device::parse("cuda:3").to_string(), "cuda:3");
  EXPECT_EQ(kCpu.to_string(), "cpu");
}

TEST(DeviceTest, RefusesWhatIsNoDevice) {
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cpu:0"}) {
    EXPECT_THROW(Device::parse(text), base::Error) << text;
  }
}

}  // namespace
}  // namespace dtrun::tensors
