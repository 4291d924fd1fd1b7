// Reading ahead: the blocks that are wanted, in their order, each once; what fails is told where
// its block is taken.
#include "checkpoint/read_ahead.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "checkpoint/read_manifest.h"
#include "dtensor/checkpoint/counting_disk.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/checkpoint/archive.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/checkpoint/offline.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::dcp {
namespace {

using base::ErrorCode;
using collectives::ProcessGroup;
using tensors::LocalTensor;

class ReadAheadTest : public testing::Test {
 protected:
  /// Saved by two ranks, each tensor of more bytes than are read without threads.
  ReadAheadTest() {
    test::run_ranks(2, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {2});
      State state;
      for (const auto& [name, shape, placement] : tensors_) {
        state.add(
            {name, distribute_tensor(numbers(shape), mesh, {placement}, {.source_rank = -1})});
      }
      save("/disk/a", state, {.group = group, .files = &disk_});
    });
    manifest_ = read_manifest(disk_, "/disk/a");
  }
  static LocalTensor numbers(const Shape& shape) {
    return tensors::arange(tensors::numel(shape), {.dtype = DType::f32}).reshape(shape);
  }
  const SavedChunk& chunk() const { return manifest_.find("rows")->chunks[0]; }
  /// All of the first chunk of "rows", then what `more` says.
  ReadAhead ahead(ReadAhead::Next more = [](BlockWalk&) { return false; }) {
    return {disk_,
            "/disk/a",
            manifest_,
            PageCache::used,
            BlockWalk(manifest_.files.size()),
            [this, more = std::move(more), is_begun = false](BlockWalk& walk) mutable {
              if (std::exchange(is_begun, true)) return more(walk);
              walk.go_on(*manifest_.find("rows"), chunk(),
                         ByteRuns(chunk().box, chunk().box, sizeof(float)));
              return true;
            }};
  }
  FilePart block(std::uint64_t index) const {
    const std::uint64_t all = tensors::numel(chunk().box.shape) * sizeof(float);
    return {chunk().file, chunk().begin + index * kBlockBytes,
            std::min(kBlockBytes, all - index * kBlockBytes)};
  }

  const std::vector<std::tuple<std::string, Shape, Placement>> tensors_ = {
      {"rows", {5120, 1024}, Shard(0)},
      {"columns", {2048, 1024}, Shard(1)},
      {"odd", {1301, 1031}, Shard(0)},
      {"odd columns", {1301, 1031}, Shard(1)}};
  CountingDisk disk_;
  Manifest manifest_;
  DirectMemory memory_;
};

TEST_F(ReadAheadTest, AMergeAndAReshardReadEachByteOnceAndGiveTheSameElements) {
  disk_.refuse_direct();  // whose reads have whole multiples, so they overlap
  const auto expect_once = [&](const std::string& name) {
    for (const SavedChunk& one : manifest_.find(name)->chunks) {
      const auto elements = static_cast<std::uint64_t>(tensors::numel(one.box.shape));
      EXPECT_TRUE(disk_.is_read_once("/disk/a/" + manifest_.files[one.file].name, one.begin,
                                     one.begin + elements * sizeof(float)))
          << name;
    }
  };
  disk_.forget();
  Archive to_merge(disk_, "/disk/a");
  merge(to_merge, "/disk/merged", {.files = &disk_});
  for (const auto& [name, shape, placement] : tensors_) expect_once(name);
  disk_.forget();
  Archive to_reshard(disk_, "/disk/a");
  reshard(to_reshard, "/disk/on-4", {4}, {}, {.files = &disk_});
  for (const auto& [name, shape, placement] : tensors_) expect_once(name);
  disk_.forget();
  Archive across(disk_, "/disk/a");
  reshard(across, "/disk/across", {2, 2}, {{"*", "[S(1), S(0)]"}}, {.files = &disk_});
  for (const auto& [name, shape, placement] : tensors_) expect_once(name);
  // More shards than are written at once.
  reshard(across, "/disk/on-12", {12}, {{"columns", "[S(1)]"}}, {.files = &disk_});
  for (const std::string path :
       {"/disk/a", "/disk/merged", "/disk/on-4", "/disk/across", "/disk/on-12"}) {
    Archive archive(disk_, path);
    for (const auto& [name, shape, placement] : tensors_) {
      const LocalTensor wanted = numbers(shape);
      const SavedTensor& tensor = archive.tensor(name);
      std::string found;
      archive.stream(tensor, {Shape(2, 0), shape}, [&](std::string_view bytes) { found += bytes; });
      ASSERT_EQ(found.size(), wanted.bytes());
      EXPECT_EQ(std::memcmp(found.data(), wanted.data(), found.size()), 0) << path << ", " << name;
      std::size_t verified = 0;
      for (const SavedChunk& one : tensor.chunks)
        archive.verify(tensor, one, [&](std::string_view bytes) { verified += bytes.size(); });
      EXPECT_EQ(verified, wanted.bytes());
    }
  }
}

TEST_F(ReadAheadTest, DamageIsFoundInAnyBlockOfAStream) {
  const SavedTensor& tensor = *manifest_.find("rows");
  for (const std::uint64_t place : {std::uint64_t{0}, 3 * kBlockBytes + 5, 9 * kBlockBytes + 1}) {
    DiskImage image = disk_.seen();
    (*image["/disk/a/" + manifest_.files[chunk().file].name])[chunk().begin + place] ^= 1;
    DiskModel damaged(image);
    Archive archive(damaged, "/disk/a");
    std::size_t given = 0;
    expect_refused(
        [&] {
          archive.stream(tensor, {Shape(2, 0), tensor.shape},
                         [&](std::string_view bytes) { given += bytes.size(); });
        },
        "\"rows\" is damaged", ErrorCode::kProtocol);
    EXPECT_LE(given, place);
  }
}

TEST_F(ReadAheadTest, ABlockThatCannotBeReadIsToldWhenItIsTaken) {
  // A file that lacks its last block.
  DiskImage image = disk_.seen();
  std::string& bytes = *image["/disk/a/" + manifest_.files[chunk().file].name];
  bytes.resize(chunk().begin + 7 * kBlockBytes + 100);
  DiskModel cut(image);
  ReadAhead reads(cut, "/disk/a", manifest_, PageCache::passed_by,
                  BlockWalk(manifest_.files.size()),
                  [&, is_begun = false](BlockWalk& walk) mutable {
                    if (std::exchange(is_begun, true)) return false;
                    walk.go_on(*manifest_.find("rows"), chunk(),
                               ByteRuns(chunk().box, chunk().box, sizeof(float)));
                    return true;
                  });
  for (std::uint64_t i = 0; i < 7; ++i) {
    const std::optional<std::string_view> taken = reads.take(block(i), memory_);
    ASSERT_TRUE(taken.has_value());
    EXPECT_TRUE(*taken == std::string_view(bytes).substr(block(i).begin, block(i).bytes));
  }
  expect_refused([&] { reads.take(block(7), memory_); }, "before its last one",
                 ErrorCode::kProtocol);
}

TEST_F(ReadAheadTest, AnotherPartThanTheNextIsLeftToTheCaller) {
  ReadAhead reads = ahead();
  EXPECT_FALSE(reads.take(block(1), memory_).has_value());
  EXPECT_TRUE(reads.take(block(0), memory_).has_value());
  EXPECT_FALSE(reads.take(block(0), memory_).has_value());
  // What was read and is not taken ends with it.
}

TEST_F(ReadAheadTest, BehindTheLastBlockIsNothing) {
  ReadAhead reads = ahead();
  for (std::uint64_t i = 0; i < 10; ++i)
    ASSERT_TRUE(reads.take(block(i), memory_).has_value()) << i;
  EXPECT_FALSE(reads.take(block(0), memory_).has_value());
}

TEST_F(ReadAheadTest, AWalkThatFailsIsToldBehindTheBlocksBeforeIt) {
  ReadAhead reads = ahead([](BlockWalk&) -> bool { throw std::runtime_error("no way on"); });
  for (std::uint64_t i = 0; i < 10; ++i)
    ASSERT_TRUE(reads.take(block(i), memory_).has_value()) << i;
  EXPECT_THROW(reads.take(block(0), memory_), std::runtime_error);
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
