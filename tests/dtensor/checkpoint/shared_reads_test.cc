// What ranks read of a checkpoint: each byte once on a machine, whoever needs it; of files without
// checksums what a rank needs and no more.
#include "checkpoint/shared_reads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <tuple>

#include "checkpoint/read_manifest.h"
#include "dtensor/checkpoint/counting_disk.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/checkpoint/archive.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/checkpoint/offline.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::dcp {
namespace {

using collectives::ProcessGroup;
using tensors::LocalTensor;

LocalTensor counted(const Shape& shape) {
  return tensors::arange(tensors::numel(shape), {.dtype = DType::f32}).reshape(shape);
}

/// Two ranks have saved tensors of rows and columns that are blocks, and that are not.
class SharedReadsTest : public testing::Test {
 protected:
  SharedReadsTest() {
    test::run_ranks(2, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {2});
      State state;
      for (const auto& [name, shape, placement] : tensors_)
        state.add(
            {name, distribute_tensor(counted(shape), mesh, {placement}, {.source_rank = -1})});
      save("/disk/a", state, {.group = group, .files = &disk_});
    });
    manifest_ = read_manifest(disk_, "/disk/a");
    disk_.refuse_direct();  // whose reads have whole multiples, so they overlap
    disk_.forget();
  }

  /// Loads all of it, each rank what the placement says. @return what each has read
  std::vector<std::uint64_t> load_on(const test::RankOptions& ranks, int size, Placement placement,
                                     Source source = Source::checkpoint,
                                     const std::string& folder = "/disk/a") {
    std::vector<std::uint64_t> read(static_cast<std::size_t>(size));
    test::run_ranks(size, ranks, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {size});
      State state;
      std::vector<Tensor> targets;
      for (const auto& [name, shape, saved] : tensors_) {
        targets.push_back(zeros(shape, mesh, {placement}));
        state.add({name, targets.back()});
      }
      const LoadReport report =
          load(folder, state, {.source = source, .group = group, .files = &disk_});
      read[static_cast<std::size_t>(group.rank())] = report.own_bytes;
      for (std::size_t i = 0; i < targets.size(); ++i) {
        const LocalTensor whole = counted(std::get<1>(tensors_[i]));
        const Box box = targets[i].spec().local_box();
        LocalTensor wanted = whole;
        for (std::size_t dim = 0; dim < box.shape.size(); ++dim)
          wanted = wanted.narrow(static_cast<int>(dim), box.offsets[dim], box.shape[dim]);
        wanted = wanted.contiguous();
        ASSERT_EQ(std::memcmp(targets[i].local().data(), wanted.data(), wanted.bytes()), 0)
            << std::get<0>(tensors_[i]) << " as " << targets[i].spec().to_string();
      }
    });
    return read;
  }
  std::uint64_t all_bytes() const {
    std::uint64_t bytes = 0;
    for (const SavedTensor& tensor : manifest_.tensors) bytes += tensor.bytes();
    return bytes;
  }
  bool is_all_read_once() const {
    for (const SavedTensor& tensor : manifest_.tensors) {
      for (const SavedChunk& chunk : tensor.chunks) {
        const auto bytes = static_cast<std::uint64_t>(tensors::numel(chunk.box.shape)) * 4;
        if (!disk_.is_read_once("/disk/a/" + manifest_.files[chunk.file].name, chunk.begin,
                                chunk.begin + bytes))
          return false;
      }
    }
    return true;
  }

  const std::vector<std::tuple<std::string, Shape, Placement>> tensors_ = {
      {"rows", {5120, 1024}, Shard(0)},
      {"columns", {2048, 1024}, Shard(1)},
      {"odd", {1301, 1031}, Shard(0)},
      {"odd columns", {1301, 1031}, Shard(1)},
      {"small", {5, 7}, Replicate()}};
  CountingDisk disk_;
  Manifest manifest_;
};

std::uint64_t sum_of(const std::vector<std::uint64_t>& numbers) {
  std::uint64_t sum = 0;
  for (const std::uint64_t number : numbers) sum += number;
  return sum;
}

TEST_F(SharedReadsTest, FourRanksReadEachByteOfTwoOnceHoweverItIsCut) {
  for (const Placement& placement : Placements{Shard(0), Shard(1), Replicate()}) {
    for (const int ranks : {2, 4}) {
      disk_.forget();
      const std::vector<std::uint64_t> read = load_on({}, ranks, placement);
      EXPECT_EQ(sum_of(read), all_bytes()) << placement.to_string() << " on " << ranks;
      EXPECT_TRUE(is_all_read_once()) << placement.to_string() << " on " << ranks;
      // Nobody reads much more than the others.
      for (const std::uint64_t own : read)
        EXPECT_LT(own, all_bytes() / static_cast<std::uint64_t>(ranks) * 3 / 2)
            << placement.to_string() << " on " << ranks;
    }
  }
}

TEST_F(SharedReadsTest, RanksOfOneMachineReadForEachOther) {
  const std::vector<std::uint64_t> read = load_on({.machines = {3, 1}}, 4, Replicate());
  EXPECT_EQ(read[0] + read[1] + read[2], all_bytes());
  EXPECT_EQ(read[3], all_bytes());
}

// Of a whole block most ranks need a part, and nobody carries it to them.
TEST_F(SharedReadsTest, WithoutAGroupThatCarriesThemEachRankReadsTheBlocksThatItNeeds) {
  const auto store = rendezvous::make_hash_store();
  std::atomic<std::uint64_t> bytes = 0;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    StoreAgreement agreement(store, "load", group.rank(), group.size());
    const DeviceMesh mesh(group, {2});
    const Tensor x = zeros({5120, 1024}, mesh, {Shard(1)});
    bytes += load("/disk/a", {{"rows", x}}, {.agreement = &agreement, .files = &disk_}).own_bytes;
  });
  EXPECT_EQ(bytes, 2 * manifest_.find("rows")->bytes());
}

TEST_F(SharedReadsTest, OneTensorUnderTwoNamesIsReadOnceForSeveralRanks) {
  std::atomic<std::uint64_t> bytes = 0;
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    const Shape shape{1301, 1031};
    const Tensor whole = zeros(shape, mesh, {Replicate()}), part = zeros(shape, mesh, {Shard(1)});
    bytes += load("/disk/a", {{"odd", whole}, {"again", part}},
                  {.group = group, .rename = {{"again", "odd"}}, .files = &disk_})
                 .own_bytes;
    EXPECT_TRUE(tensors::equal(whole.local(), counted(shape)));
    EXPECT_TRUE(tensors::equal(part.full_tensor().local(), counted(shape)));
  });
  EXPECT_EQ(bytes, manifest_.find("odd")->bytes());
}

TEST_F(SharedReadsTest, DamageInABlockThatAnotherReadsIsToldToAllAndReachesNoTensor) {
  const SavedChunk& chunk = manifest_.find("columns")->chunks[1];
  DiskImage image = disk_.seen();
  (*image["/disk/a/" + manifest_.files[chunk.file].name])[chunk.begin + (3 << 20)] ^= 1;
  DiskModel damaged(image);
  std::atomic<int> untouched = 0;
  const auto thrown = test::run_failing_ranks(4, {}, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {4});
    const Tensor x = full({2048, 1024}, -1, mesh, {Replicate()});
    try {
      load("/disk/a", {{"columns", x}}, {.group = group, .files = &damaged});
    } catch (...) {
      untouched += tensors::max(x.local()).item() == -1 ? 1 : 0;
      throw;
    }
  });
  for (const auto& one : thrown) {
    ASSERT_TRUE(one.has_value());
    EXPECT_EQ(one->code, base::ErrorCode::kProtocol);
    EXPECT_NE(one->text.find("\"columns\" is damaged"), std::string::npos) << one->text;
    EXPECT_EQ(one->text, thrown[0]->text);
  }
  EXPECT_EQ(untouched, 4);
}

TEST_F(SharedReadsTest, EachByteOfFilesWithoutChecksumsIsReadOnceToo) {
  disk_.make_folder("/disk/other");
  Archive archive(disk_, "/disk/a");
  merge(archive, "/disk/other/model.safetensors", {.files = &disk_});
  // Ranks read the pieces of a row together, which lie near to each other, and send them.
  for (const Placement& placement : Placements{Shard(0), Shard(1), Replicate()}) {
    for (const int ranks : {1, 3, 4}) {
      disk_.forget();
      EXPECT_EQ(sum_of(load_on({}, ranks, placement, Source::safetensors, "/disk/other")),
                all_bytes());
      const std::uint64_t length = disk_.seen()["/disk/other/model.safetensors"]->size();
      EXPECT_TRUE(disk_.is_read_once("/disk/other/model.safetensors", length - all_bytes(), length))
          << placement.to_string() << " on " << ranks;
    }
  }
}

TEST_F(SharedReadsTest, PiecesOfRowsThatLieFarApartAreReadByThemselves) {
  const Shape shape{40, 200'000};
  disk_.make_folder("/disk/other");
  save("/disk/wide", {{"wide", Tensor(counted(shape))}}, {.files = &disk_});
  Archive archive(disk_, "/disk/wide");
  merge(archive, "/disk/other/model.safetensors", {.files = &disk_});
  disk_.forget();
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {4});
    const Tensor x = zeros(shape, mesh, {Shard(1)});
    const LoadReport report =
        load("/disk/other", {{"wide", x}},
             {.source = Source::safetensors, .group = group, .files = &disk_});
    EXPECT_EQ(report.own_bytes, x.local().bytes());
    EXPECT_TRUE(tensors::equal(x.local(), counted(shape).narrow(1, 50'000 * group.rank(), 50'000)));
  });
  const std::uint64_t bytes = disk_.bytes_read("/disk/other/model.safetensors");
  EXPECT_LT(bytes, counted(shape).bytes() + 4096);
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
