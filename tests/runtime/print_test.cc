// print: what a line looks like, and that it is written whole or not silently.
#include "dtrun/runtime/print.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "dtrun/base/unique_fd.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "support/thrown_error.h"

namespace dtrun::runtime {
namespace {

using tensors::full;
using tensors::LocalTensor;

std::string printed(const std::function<void()>& action) {
  testing::internal::CaptureStdout();
  action();
  return testing::internal::GetCapturedStdout();
}

TEST(PrintTest, OneValueStandsByItself) {
  EXPECT_EQ(printed([] { print(full({1}, 2)); }), "tensor([2.])\n");
  EXPECT_EQ(printed([] { print(collectives::ProcessGroup()); }), "ProcessGroup(none)\n");
  EXPECT_EQ(printed([] { print(42); }), "42\n");
}

TEST(PrintTest, AVectorLooksLikePythonsList) {
  const std::vector<LocalTensor> list = {full({1}, 0), full({1}, 1)};
  EXPECT_EQ(printed([&] { print(list); }), "[tensor([0.]), tensor([1.])]\n");
  EXPECT_EQ(printed([&] { print("[Rank {}] {}", 3, list); }),
            "[Rank 3] [tensor([0.]), tensor([1.])]\n");
  EXPECT_EQ(printed([] {
              print(std::vector<LocalTensor>{full({2, 1}, 6), full({1}, 1)});
            }),
            "[tensor([[6.],\n        [6.]]), tensor([1.])]\n");
  EXPECT_EQ(printed([] { print(std::vector<LocalTensor>{}); }), "[]\n");
  EXPECT_EQ(printed([] { print(std::vector<std::vector<int>>{{1, 2}, {}}); }), "[[1, 2], []]\n");
}

TEST(PrintTest, ALiteralIsAFormatAndAnyOtherTextIsItself) {
  static constexpr std::string_view kText = "rank {} of {}";
  EXPECT_EQ(printed([] { print(kText, 1, 4); }), "rank 1 of 4\n");
  EXPECT_EQ(printed([] { print("plain, with {{braces}}"); }), "plain, with {braces}\n");
  EXPECT_EQ(printed([] { print(std::string("as it is: {}")); }), "as it is: {}\n");
  const char* const pointer = "as it is: {";
  EXPECT_EQ(printed([&] { print(pointer); }), "as it is: {\n");
  EXPECT_EQ(printed([&] { print("{}", static_cast<const char*>(nullptr)); }), "(null)\n");
}

TEST(PrintTest, FormatsAreThoseOfFmt) {
  EXPECT_EQ(printed([] { print("{:.2f} {:8.3e} {:g} {}", 3.14159, 1234.5, 0.5f, 0.1); }),
            "3.14 1.234e+03 0.5 0.1\n");
  EXPECT_EQ(printed([] { print("{:>4}|{:<4}|{:*^5}|{:05}|{:+d}|{:#x}", 1, 2, 3, 4, 5, 255u); }),
            "   1|2   |**3**|00004|+5|0xff\n");
  EXPECT_EQ(printed([] { print("{:>6}|{:.2}|{:\u00b7<4}|{}", "text", "text", "t", 'c'); }),
            "  text|te|t\u00b7\u00b7\u00b7|c\n");
  EXPECT_EQ(printed([] { print("{1} {0} {1}", true, -7); }), "-7 true -7\n");
  EXPECT_EQ(printed([] { print("{:>8}", std::vector<int>{1, 2}); }), "  [1, 2]\n");
  EXPECT_EQ(printed([] {
              print("{} {}", tensors::DType::bf16, tensors::Shape{2, 3});
            }),
            "bfloat16 [2, 3]\n");
  EXPECT_EQ(printed([] { print("{}", ~std::uint64_t{0}); }), "18446744073709551615\n");
}

TEST(PrintTest, ALineThatCannotBeWrittenIsAnError) {
  const base::UniqueFd real(::dup(STDOUT_FILENO));
  const base::UniqueFd full_disk(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ::dup2(full_disk.get(), STDOUT_FILENO);
  const auto error = testing_support::error_of([] { print("lost"); });
  ::dup2(real.get(), STDOUT_FILENO);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), base::ErrorCode::kSystem);
}

}  // namespace
}  // namespace dtrun::runtime
