// Copies around the caches: every byte of them, and none beside, wherever they begin and end.
#include "cpu/large_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <random>
#include <vector>

namespace dtrun::collectives::cpu {
namespace {

using Copy = void (*)(void*, const void*, std::size_t);

void expect_whole(Copy copy, std::initializer_list<std::size_t> sizes) {
  constexpr std::size_t kRoom = 256;
  constexpr std::byte kOther{0xa5};
  std::vector<std::byte> source(std::max(sizes) + kRoom), target(source.size());
  std::mt19937 random(3);
  std::ranges::generate(source, [&] { return static_cast<std::byte>(random()); });
  for (const std::size_t bytes : sizes)
    for (const std::size_t from : {std::size_t{0}, std::size_t{1}, std::size_t{40}})
      for (const std::size_t to : {std::size_t{0}, std::size_t{1}, std::size_t{63}}) {
        std::ranges::fill(target, kOther);
        copy(target.data() + to, source.data() + from, bytes);
        const auto begin = target.begin() + static_cast<std::ptrdiff_t>(to);
        const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
        EXPECT_TRUE(std::equal(begin, end, source.begin() + static_cast<std::ptrdiff_t>(from)))
            << bytes << " bytes from " << from << " to " << to;
        const auto is_other = [&](std::byte byte) { return byte == kOther; };
        EXPECT_TRUE(std::all_of(target.begin(), begin, is_other));
        EXPECT_TRUE(std::all_of(end, target.end(), is_other));
      }
}

TEST(LargeCopyTest, AllBytesAreCopiedAndNoneBesideThem) {
  expect_whole(&copy_large, {0, 1, kStreamedBytes - 1, kStreamedBytes, kStreamedBytes + 63});
}

TEST(LargeCopyTest, SoAreFewBytesAroundTheCaches) {
  expect_whole(&copy_around, {1, 62, 64, 200, 4096});
}

}  // namespace
}  // namespace dtrun::collectives::cpu
