// Tensors of more than 4 GiB: every count and offset on the way must have 64 bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"

namespace dtrun::collectives {
namespace {

constexpr std::int64_t kBytes = (std::int64_t{4} << 30) + 3;
/// A prime, so that no piece of a power of two looks like another.
constexpr std::int64_t kPeriod = 1048583;
using Pattern = std::vector<std::uint8_t>;

Pattern pattern_of(unsigned salt) {
  Pattern pattern(kPeriod);
  std::uint32_t state = salt;
  for (std::uint8_t& byte : pattern) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  return pattern;
}

void fill(const LocalTensor& tensor, const Pattern& pattern) {
  auto* bytes = tensor.data_as<std::uint8_t>();
  for (std::int64_t at = 0; at < kBytes; at += kPeriod)
    std::memcpy(bytes + at, pattern.data(),
                static_cast<std::size_t>(std::min(kPeriod, kBytes - at)));
}

/// Where the first piece lies that differs; -1: nowhere.
std::int64_t first_difference(const LocalTensor& tensor, const Pattern& pattern) {
  const auto* bytes = tensor.data_as<std::uint8_t>();
  for (std::int64_t at = 0; at < kBytes; at += kPeriod) {
    const auto size = static_cast<std::size_t>(std::min(kPeriod, kBytes - at));
    if (std::memcmp(bytes + at, pattern.data(), size) != 0) return at;
  }
  return -1;
}

std::int64_t available_gib() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::int64_t kib = 0;
  while (file >> name)
    if (name == "MemAvailable:" && file >> kib) return kib >> 20;
  return 0;
}

class HugeTensorTest : public testing::TestWithParam<Transport> {};

TEST_P(HugeTensorTest, ABroadcastAMessageAndASumOfMoreThanFourGiBAreWhole) {
  constexpr std::int64_t kNeeded = 10;  // two tensors, and what lies between
  if (const std::int64_t available = available_gib(); available < kNeeded)
    GTEST_SKIP() << "two tensors of 4 GiB need " << kNeeded << " GiB of memory, and " << available
                 << " GiB are available";
  const Pattern first = pattern_of(1), second = pattern_of(2);
  Pattern sum = first;
  for (std::size_t i = 0; i < sum.size(); ++i)
    sum[i] = static_cast<std::uint8_t>(sum[i] + second[i]);
  const test::RankOptions options{.transport = GetParam(), .timeout = std::chrono::minutes(5)};
  test::run_ranks(2, options, [&](const ProcessGroup& group) {
    const LocalTensor tensor = tensors::zeros({kBytes}, {.dtype = tensors::DType::u8});
    if (group.rank() == 1) fill(tensor, first);
    group.broadcast(tensor, 1);
    EXPECT_EQ(first_difference(tensor, first), -1) << "rank " << group.rank();
    if (group.rank() == 1) {
      fill(tensor, second);
      group.send(tensor, 0);
    } else {
      group.recv(tensor, 1);
      EXPECT_EQ(first_difference(tensor, second), -1);
      fill(tensor, first);
    }
    group.all_reduce(tensor);
    EXPECT_EQ(first_difference(tensor, sum), -1) << "rank " << group.rank();
  });
}

INSTANTIATE_TEST_SUITE_P(, HugeTensorTest, testing::Values(Transport::automatic, Transport::tcp),
                         [](const auto& tested) {
                           return tested.param == Transport::tcp ? "Tcp" : "SharedMemory";
                         });

}  // namespace
}  // namespace dtrun::collectives
