#include "dtrun/base/small_blocks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace dtrun::base {
namespace {

struct Small : small_blocks::Object<Small> {
  explicit Small(int its_value) : value(its_value) {}
  std::int64_t value;
  char more[90] = {};
};

TEST(SmallBlocksTest, ObjectsOfASizeHaveDifferentAlignedBlocks) {
  std::vector<Small*> objects;
  for (int i = 0; i < 500; ++i) objects.push_back(new Small(i));
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(objects[static_cast<std::size_t>(i)]->value, i);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(objects[static_cast<std::size_t>(i)]) % 16, 0u);
  }
  for (Small* const object : objects) delete object;
}

TEST(SmallBlocksTest, AThreadUsesItsLastBlockOfASizeAgain) {
  if (!small_blocks::kKeepsBlocks) GTEST_SKIP() << "no block is kept under the address sanitizer";
  std::thread([] {
    void* const block = small_blocks::allocate(100);
    small_blocks::release(block, 100);
    void* const larger = small_blocks::allocate(200);
    EXPECT_NE(larger, block);
    EXPECT_EQ(small_blocks::allocate(97), block);  // 97 to 112 bytes are one size
    small_blocks::release(larger, 200);
    small_blocks::release(block, 97);
  }).join();
}

TEST(SmallBlocksTest, AThreadKeepsSoManyOfASizeAndNoMore) {
  if (!small_blocks::kKeepsBlocks) GTEST_SKIP() << "no block is kept under the address sanitizer";
  std::thread([] {
    std::vector<void*> blocks;
    for (std::uint32_t i = 0; i < 3 * small_blocks::kMostKept; ++i)
      blocks.push_back(small_blocks::allocate(1024));
    for (void* const block : blocks) small_blocks::release(block, 1024);
    EXPECT_EQ(small_blocks::kept_of(1024), small_blocks::kMostKept);
    EXPECT_EQ(small_blocks::kept_of(1000), 0u);
  }).join();
}

TEST(SmallBlocksTest, WhatAnotherThreadGivesBackIsItsOwn) {
  if (!small_blocks::kKeepsBlocks) GTEST_SKIP() << "no block is kept under the address sanitizer";
  std::thread([] {
    void* const block = small_blocks::allocate(48);
    const std::uint32_t before = small_blocks::kept_of(48);
    std::thread([block] {
      EXPECT_EQ(small_blocks::kept_of(48), 0u);
      small_blocks::release(block, 48);
      EXPECT_EQ(small_blocks::kept_of(48), 1u);
    }).join();
    EXPECT_EQ(small_blocks::kept_of(48), before);
  }).join();
}

TEST(SmallBlocksTest, AnObjectMayOutliveWhatItsThreadKeeps) {
  std::uint32_t kept_at_end = 1;
  std::thread([&kept_at_end] {
    struct Last {
      ~Last() {
        delete object;
        *kept = small_blocks::kept_of(sizeof(Small));
      }
      Small* object = nullptr;
      std::uint32_t* kept = nullptr;
    };
    // Made before the thread keeps anything: ends after what it keeps has been freed.
    static thread_local Last last;
    last.kept = &kept_at_end;
    last.object = new Small(1);
    delete new Small(2);
  }).join();
  EXPECT_EQ(kept_at_end, 0u);
}

}  // namespace
}  // namespace dtrun::base
