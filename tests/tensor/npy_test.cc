// .npy files: byte for byte what numpy writes, back as it was, and every fault of a file by name.
#include "dtrun/tensor/npy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "dtrun/base/error.h"
#include "dtrun/tensor/host_memory.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

class NpyTest : public testing::Test {
 protected:
  NpyTest() { std::filesystem::create_directory(folder_); }
  ~NpyTest() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ / "a.npy"; }
  std::string saved(const LocalTensor& tensor) const {
    save_npy(path(), tensor);
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  LocalTensor loaded(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary) << bytes;
    return load_npy(path());
  }
  void expect_refused(const std::string& bytes, const std::string& why) const {
    try {
      loaded(bytes);
      FAIL() << "no error: " << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(path()), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("npy_test." + std::to_string(::getpid()));
};

/// As numpy pads it.
std::string file_of(const std::string& header, const std::string& elements) {
  std::string bytes = std::string("\x93NUMPY\x01\x00", 8) + "v" + '\0' + header;
  bytes.append(127 - bytes.size(), ' ');
  return bytes + "\n" + elements;
}

TEST_F(NpyTest, FilesAreNumpysByteForByte) {
  EXPECT_EQ(saved(tensor({1.0F, -2.0F})),
            file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
                    std::string("\0\0\x80\x3f\0\0\0\xc0", 8)));
  EXPECT_EQ(saved(tensor({{1, 2}, {3, 4}}, {.dtype = DType::u8})),
            file_of("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2), }", "\1\2\3\4"));
  EXPECT_EQ(saved(full({}, 7, {DType::i64})),
            file_of("{'descr': '<i8', 'fortran_order': False, 'shape': (), }",
                    std::string("\7\0\0\0\0\0\0\0", 8)));
}

TEST_F(NpyTest, EveryDTypeAndShapeComesBack) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::i64, DType::i32, DType::i16,
                            DType::i8, DType::u8, DType::boolean}) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{0, 2}, Shape{2, 3, 1}}) {
      const LocalTensor whole = arange(numel(shape)).view(shape).to(dtype);
      save_npy(path(), whole);
      const LocalTensor found = load_npy(path());
      EXPECT_EQ(found.dtype(), dtype);
      EXPECT_TRUE(equal(found, whole) && found.shape() == shape) << found.to_string();
    }
  }
  const LocalTensor view = arange(6).view({2, 3}).transpose(0, 1);
  save_npy(path(), view);
  EXPECT_TRUE(equal(load_npy(path()), view));
}

TEST_F(NpyTest, OtherByteOrdersAndFortranOrderAreRead) {
  EXPECT_TRUE(equal(loaded(file_of("{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }",
                                   std::string("\0\0\1\0\0\0\0\2", 8))),
                    tensor({256, 2}, {.dtype = DType::i32})));
  EXPECT_TRUE(equal(
      loaded(file_of("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", "\1\4\2\5\3\6")),
      tensor({{1, 2, 3}, {4, 5, 6}}, {.dtype = DType::u8})));
}

TEST_F(NpyTest, FaultsAreNamed) {
  const std::string good = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }";
  expect_refused("", "does not begin as one");
  expect_refused("\x93NUMPY\x01", "does not begin as one");
  expect_refused(std::string("\x93NUMPY\x09\x00", 8), "its format is 9");
  expect_refused(file_of(good, "").substr(0, 40), "ends within its header");
  expect_refused(std::string("\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12), "its header has 2147483647");
  expect_refused(file_of(good, "\1\2"), "take 2 bytes, those of shape [3] take 3");
  expect_refused(file_of(good, "\1\2\3\4"), "take 4 bytes");
  expect_refused(file_of("{'descr': '<c8', 'fortran_order': False, 'shape': (), }", "12345678"),
                 "its elements are '<c8'");
  expect_refused(
      file_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (), }", "1234"),
      "its elements are");
  expect_refused(file_of("{'descr': '|u1', 'fortran_order': 1, 'shape': (), }", "1"),
                 "fortran_order 1");
  expect_refused(file_of("{'descr': '|u1', 'fortran_order': False, 'shape': (-1,), }", "1"),
                 "the shape (-1,)");
  expect_refused(file_of("{'descr': '|u1', 'fortran_order': False, }", "1"), "has no shape");
  try {
    load_npy(path() + ".none");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  }
}

TEST_F(NpyTest, AShapeThatNoMemoryHoldsIsRefusedWithoutAllocatingIt) {
  const HostMemoryMeter meter;
  ASSERT_TRUE(meter.counts());
  const auto of = [](const std::string& type, const std::string& shape) {
    return file_of("{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }",
                   "");
  };
  const std::string large = std::to_string(std::int64_t{1} << 33);
  expect_refused(of("|u1", std::to_string(std::int64_t{1} << 40) + ","),
                 "take 0 bytes, those of shape [1099511627776] take 1099511627776");
  expect_refused(of("<f8", std::to_string(std::int64_t{1} << 40) + ","), "take 8796093022208");
  // The product of these, and the bytes of that, are 0 in 64 bits.
  expect_refused(of("|u1", large + ", " + large), "the shape [8589934592, 8589934592], of more");
  expect_refused(of("<f8", std::to_string(std::int64_t{1} << 61) + ","),
                 "the shape [2305843009213693952], of more bytes than 64 bits count");
  expect_refused(of("|u1", "99999999999999999999,"), "the shape (99999999999999999999,)");
  EXPECT_EQ(meter.peak(), 0);
  EXPECT_EQ(loaded(of("<f8", large + ", " + large + ", 0")).numel(), 0);
}

TEST_F(NpyTest, WhatCannotBeSavedLeavesTheOldFile) {
  const std::string before = saved(ones({2}));
  EXPECT_THROW(save_npy(path(), ones({2}, {DType::bf16})), Error);
  EXPECT_THROW(save_npy(path(), ones(Shape(40'000, 1))), Error) << "the header counts 16 bits";
  std::filesystem::create_directory(path() + ".partial");
  EXPECT_THROW(save_npy(path(), zeros({2})), Error);
  std::filesystem::remove(path() + ".partial");
  EXPECT_TRUE(equal(load_npy(path()), ones({2})));
  EXPECT_THROW(save_npy("/no/such/folder/a.npy", zeros({2})), Error);
}

}  // namespace
}  // namespace dtrun::tensors
