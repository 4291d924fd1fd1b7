// Reading in slices: any box, cut anywhere, on any number of threads, has the right bytes, and no
// damage goes unseen.
#include "checkpoint/chunk_reads.h"

#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/read_manifest.h"
#include "dtensor/checkpoint/disk_model.h"
#include "dtensor/checkpoint/own_folder.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/safetensors_header.h"
#include "dtrun/tensor/threads.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::dcp {
namespace {

using collectives::ProcessGroup;
using tensors::LocalTensor;

constexpr std::uint64_t kTasks[] = {300'000, std::uint64_t{3} << 19, kTaskBytes};

LocalTensor numbers(const Shape& shape) {
  return tensors::arange(tensors::numel(shape), {.dtype = DType::f32}).reshape(shape);
}
LocalTensor part_of(const LocalTensor& whole, const Box& box) {
  LocalTensor part = whole;
  for (std::size_t dim = 0; dim < box.shape.size(); ++dim)
    part = part.narrow(static_cast<int>(dim), box.offsets[dim], box.shape[dim]);
  return part.contiguous();
}

class ChunkReadsTest : public testing::Test {
 protected:
  /// A checkpoint of three ranks, in memory. Rows of "even" and blocks come together, those of
  /// "odd" do not.
  ChunkReadsTest() {
    test::run_ranks(3, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {3});
      State state;
      for (const auto& [name, whole] : wholes_) {
        const auto add = [&](const std::string& how, const Placement& placement) {
          state.add(
              {name + " " + how, distribute_tensor(whole, mesh, {placement}, {.source_rank = -1})});
        };
        add("whole", Replicate());
        if (whole.shape().size() < 2) continue;
        add("rows", Shard(0));
        add("columns", Shard(1));
      }
      save("/disk/a", state, {.group = group, .split_above = 1 << 20, .files = &disk_});
    });
    manifest_ = read_manifest(disk_, "/disk/a");
  }
  ~ChunkReadsTest() override { tensors::set_num_threads(threads_); }

  const LocalTensor& whole_of(const SavedTensor& tensor) const {
    for (const auto& [name, whole] : wholes_)
      if (tensor.name.starts_with(name)) return whole;
    throw std::logic_error(tensor.name);
  }
  /// Reads a box of a tensor. @return bytes of chunks
  std::uint64_t read(const SavedTensor& tensor, const Box& box, const LocalTensor& memory,
                     std::uint64_t task_bytes) {
    std::vector<ChunkRead> reads;
    for (const SavedChunk& chunk : tensor.chunks)
      reads.push_back({&tensor, &chunk, box, static_cast<char*>(memory.data())});
    return read_chunks(disk_, "/disk/a", manifest_, reads, cache_, task_bytes);
  }

  const std::vector<std::pair<std::string, LocalTensor>> wholes_ = {
      {"even", numbers({700, 1024})},
      {"odd", numbers({301, 1031})},
      {"deep", numbers({1, 1, 90, 3, 1000})},
      {"long", numbers({500'000})},
      {"one", numbers({})},
      {"none", numbers({0, 4})}};
  DiskModel disk_;
  Manifest manifest_;
  PageCache cache_ = PageCache::used;
  const int threads_ = tensors::num_threads();
};

TEST_F(ChunkReadsTest, AnyBoxIsRightOnAnyNumberOfThreads) {
  for (const int threads : {1, 2, 7}) {
    tensors::set_num_threads(threads);
    cache_ = threads == 7 ? PageCache::used : PageCache::passed_by;
    for (const SavedTensor& tensor : manifest_.tensors) {
      const Shape& shape = tensor.shape;
      std::vector<Box> boxes = {{Shape(shape.size(), 0), shape}};
      if (tensors::numel(shape) > 1) {
        // Rows in the middle, columns in the middle, and one element.
        for (std::size_t dim = 0; dim < shape.size(); ++dim) {
          boxes.push_back(boxes[0]);
          boxes.back().offsets[dim] = shape[dim] / 3;
          boxes.back().shape[dim] = shape[dim] - shape[dim] / 3 - shape[dim] / 5;
        }
        boxes.push_back({boxes[0].offsets, Shape(shape.size(), 1)});
        boxes.back().offsets.back() = shape.back() - 1;
      }
      for (const Box& box : boxes) {
        const LocalTensor wanted = part_of(whole_of(tensor), box);
        for (const std::uint64_t task_bytes : kTasks) {
          const LocalTensor found = tensors::zeros(box.shape, {.dtype = DType::f32});
          read(tensor, box, found, task_bytes);
          ASSERT_EQ(std::memcmp(found.data(), wanted.data(), wanted.bytes()), 0)
              << tensor.name << ", " << threads << " threads, " << task_bytes;
        }
      }
    }
  }
}

TEST_F(ChunkReadsTest, BytesAreReadOnceByOneThreadAndWhereSlicesAreBlocks) {
  const SavedTensor& even = *manifest_.find("even whole");
  const SavedTensor& odd = *manifest_.find("odd whole");
  const auto bytes_of = [&](const SavedTensor& tensor, int threads) {
    tensors::set_num_threads(threads);
    const LocalTensor memory = tensors::zeros(tensor.shape, {.dtype = DType::f32});
    return read(tensor, {Shape(2, 0), tensor.shape}, memory, std::uint64_t{3} << 18);
  };
  EXPECT_EQ(bytes_of(even, 1), even.bytes());
  EXPECT_EQ(bytes_of(odd, 1), odd.bytes());
  EXPECT_LT(bytes_of(odd, 2), 3 * odd.bytes());
}

TEST_F(ChunkReadsTest, LargeBlocksPassByThePageCacheWhereTheFileSystemCanDoThat) {
  tensors::set_num_threads(1);
  cache_ = PageCache::passed_by;
  const SavedTensor& tensor = *manifest_.find("odd whole");
  const LocalTensor& wanted = whole_of(tensor);
  const auto is_read = [&] {
    const LocalTensor memory = tensors::zeros(tensor.shape, {.dtype = DType::f32});
    const std::uint64_t bytes = read(tensor, {Shape(2, 0), tensor.shape}, memory, kTaskBytes);
    EXPECT_EQ(std::memcmp(memory.data(), wanted.data(), wanted.bytes()), 0);
    return bytes;
  };
  EXPECT_EQ(is_read(), tensor.bytes());
  const std::uint64_t direct = disk_.bytes_read_directly();
  EXPECT_GE(direct, 1U << 20);
  // Reads that end within a multiple go on through the page cache.
  disk_.take_at_most(100'001);
  EXPECT_EQ(is_read(), tensor.bytes());
  EXPECT_EQ(disk_.bytes_read_directly(), direct + 100'001);
  disk_.take_at_most(~std::size_t{0});
  disk_.refuse_direct();
  EXPECT_EQ(is_read(), tensor.bytes());
  EXPECT_EQ(disk_.bytes_read_directly(), direct + 100'001);
}

TEST_F(ChunkReadsTest, DamageInAnySliceIsFound) {
  const SavedTensor& tensor = *manifest_.find("even rows");
  const LocalTensor memory = tensors::zeros(tensor.shape, {.dtype = DType::f32});
  const Box all{Shape(2, 0), tensor.shape};
  tensors::set_num_threads(3);
  const DiskImage whole = disk_.seen();
  for (const SavedChunk& chunk : tensor.chunks) {
    const std::string file = "/disk/a/" + manifest_.files[chunk.file].name;
    const std::uint64_t bytes = tensors::bytes_of_shape(chunk.box.shape, tensor.dtype);
    for (const std::uint64_t place : {std::uint64_t{0}, bytes / 2, bytes - 1}) {
      DiskImage image = whole;
      (*image[file])[chunk.begin + place] ^= 4;
      DiskModel damaged(image);
      std::vector<ChunkRead> reads;
      for (const SavedChunk& one : tensor.chunks)
        reads.push_back({&tensor, &one, all, static_cast<char*>(memory.data())});
      expect_refused(
          [&] { read_chunks(damaged, "/disk/a", manifest_, reads, PageCache::passed_by, 100'000); },
          "is damaged", base::ErrorCode::kProtocol);
    }
    // A header is looked at by whoever is the first to open the file.
    DiskImage image = whole;
    (*image[file])[20] ^= 4;
    DiskModel damaged(image);
    expect_refused(
        [&] {
          read_chunks(damaged, "/disk/a", manifest_,
                      {{&tensor, &chunk, all, static_cast<char*>(memory.data())}}, PageCache::used,
                      100'000);
        },
        "the header of", base::ErrorCode::kProtocol);
  }
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
