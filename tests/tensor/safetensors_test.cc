// .safetensors files: the bytes of the reference, back as they were, and every fault by name.
#include "dtrun/tensor/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "tensor/all_dtypes.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() { std::filesystem::create_directory(folder_); }
  ~SafetensorsTest() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ / "a.safetensors"; }
  static std::string file_of(const std::string& header, const std::string& elements) {
    std::string length(8, '\0');
    const std::uint64_t count = header.size();
    std::memcpy(length.data(), &count, sizeof(count));
    return length + header + elements;
  }
  NamedTensors loaded(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary) << bytes;
    return load_safetensors(path());
  }
  void expect_refused(const std::string& bytes, const std::string& why) const {
    try {
      loaded(bytes);
      FAIL() << "no error: " << why;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(path()), std::string::npos) << error.what();
    }
  }

  const std::filesystem::path folder_ =
      testing::TempDir() + "safetensors." + std::to_string(::getpid());
};

TEST_F(SafetensorsTest, AFileHasTheBytesOfTheFormat) {
  save_safetensors(path(),
                   {{{"b", full({1}, 7, {DType::u8})}, {"a", full({2, 1}, 1, {DType::f32})}},
                    {{"format", "pt"}}});
  std::ifstream file(path(), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(bytes, file_of(padded, std::string("\0\0\x80\x3f\0\0\x80\x3f\x07", 9)));
}

TEST_F(SafetensorsTest, EveryDtypeAndShapeComesBack) {
  NamedTensors named;
  for (const DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{2, 3}})
      named.tensors.emplace_back(std::string(dtype_name(dtype)) + shape_to_string(shape),
                                 arange(numel(shape), {DType::f64}).reshape(shape).to(dtype));
  }
  named.tensors.emplace_back("columns", arange(6, {DType::f32}).reshape({2, 3}).transpose(0, 1));
  save_safetensors(path(), named);
  const NamedTensors found = load_safetensors(path());
  EXPECT_EQ(found.tensors.size(), named.tensors.size());
  for (const auto& [name, tensor] : named.tensors) {
    const LocalTensor& other = found.at(name);
    EXPECT_EQ(other.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(other.shape(), tensor.shape()) << name;
    EXPECT_EQ(other.to_vector(), tensor.to_vector()) << name;
  }
  EXPECT_THROW(found.at("row"), Error);
}

TEST_F(SafetensorsTest, WhatIsNoSuchFileIsRefusedByName) {
  EXPECT_THROW(load_safetensors(folder_ / "none"), Error);
  const auto entry = [](const std::string& more) { return R"({"a":{)" + more + "}}"; };
  const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  EXPECT_EQ(loaded(file_of(entry(good), "1234")).tensors.size(), 1U);
  expect_refused("", "length of its header");
  expect_refused(std::string(8, '\xff'), "length of its header");
  expect_refused(file_of("{}", "").substr(0, 9), "length of its header");
  expect_refused(file_of("{", ""), "JSON");
  expect_refused(file_of("[]", ""), "no JSON object");
  expect_refused(file_of("{}", "1"), "take 0 bytes, and 1 follow");
  expect_refused(file_of(entry(good), "12345"), "take 4 bytes, and 5 follow");
  expect_refused(file_of(entry(good), "123"), "take 4 bytes, and 3 follow");
  expect_refused(file_of(R"({"a":3})", ""), "\"a\" has no dtype");
  expect_refused(file_of(entry(R"("dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1])"), "1"),
                 "F8_E4M3");
  expect_refused(file_of(entry(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])"), "1"),
                 "its shape has -1");
  expect_refused(file_of(entry(R"("dtype":"U8","shape":2,"data_offsets":[0,1])"), "1"),
                 "its shape is no list");
  expect_refused(
      file_of(entry(R"("dtype":"U8","shape":[4611686018427387904,8],"data_offsets":[0,0])"), ""),
      "do not take the bytes");
  expect_refused(file_of(entry(R"("dtype":"U8","shape":[2],"data_offsets":[0,1])"), "1"),
                 "do not take the bytes");
  expect_refused(file_of(entry(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), "12"),
                 "begins at byte 1, where 0 was due");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                         R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                         "123"),
                 "begins at byte 1, where 2 was due");
  expect_refused(file_of(R"({"__metadata__":{"a":1}})", ""), "more than texts");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                         R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                         ""),
                 "a name stands twice");
  expect_refused(
      file_of(R"({"a\"b":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", ""),
      "a name stands twice");
  expect_refused(file_of(" {}", ""), "no JSON object");
}

TEST_F(SafetensorsTest, NamesThatCannotBeWrittenAreRefusedAndTheOldFileStays) {
  save_safetensors(path(), {{{"a", full({1}, 7)}}});
  const LocalTensor one = full({1}, 1);
  EXPECT_THROW(save_safetensors(path(), {{{"a", one}, {"a", one}}}), Error);
  EXPECT_THROW(save_safetensors(path(), {{{"__metadata__", one}}}), Error);
  EXPECT_EQ(load_safetensors(path()).at("a").to_vector(), std::vector<double>{7});
  EXPECT_THROW(save_safetensors(folder_ / "none" / "b", {{{"a", one}}}), Error);
}

}  // namespace
}  // namespace dtrun::tensors
