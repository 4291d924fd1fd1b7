#include "checkpoint/block_writer.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <random>

#include "dtensor/checkpoint/disk_model.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/checkpoint/manifest.h"

namespace dtrun::dtensor::dcp {
namespace {

using base::ErrorCode;

std::string random_bytes(std::size_t count) {
  std::mt19937 random(1);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

/// Writes in pieces of many sizes.
void write_in_pieces(DiskModel& disk, const std::string& bytes) {
  OpenFile file = OpenFile::create(disk, "/disk/a");
  BlockWriter writer(file, bytes.size());
  const std::size_t sizes[] = {1, 4096, 700'001, 2 * kBlockBytes, 0, 13};
  std::size_t i = 0;
  for (std::size_t at = 0; at < bytes.size(); ++i) {
    const std::string_view piece = std::string_view(bytes).substr(at, sizes[i % 6]);
    writer.write(piece);
    at += piece.size();
  }
  writer.finish();
  file.sync();
  file.close();
}

TEST(BlockWriterTest, AnySizeInAnyPiecesIsWritten) {
  for (const std::size_t blocks : {0, 1, 4, 11}) {
    for (const int more : {-4096, -1, 0, 1, 4096, 5000}) {
      const auto size = static_cast<std::int64_t>(blocks * kBlockBytes) + more;
      if (size < 0) continue;
      const std::string bytes = random_bytes(static_cast<std::size_t>(size));
      DiskModel disk;
      write_in_pieces(disk, bytes);
      EXPECT_TRUE(disk.seen().at("/disk/a") == bytes) << size;
      const std::uint64_t direct = disk.bytes_written_directly();
      EXPECT_EQ(direct, bytes.size() < 4 * kBlockBytes ? 0 : bytes.size() / 4096 * 4096);
    }
  }
}

TEST(BlockWriterTest, WhatIsNotWrittenDirectlyGoesThroughThePageCache) {
  const std::string bytes = random_bytes(9 * kBlockBytes + 77);
  DiskModel without;
  without.refuse_direct();
  write_in_pieces(without, bytes);
  EXPECT_TRUE(without.seen().at("/disk/a") == bytes);
  EXPECT_EQ(without.bytes_written_directly(), 0U);
  // The first write ends within a multiple.
  DiskModel taking_less;
  taking_less.take_at_most(100'001);
  write_in_pieces(taking_less, bytes);
  EXPECT_TRUE(taking_less.seen().at("/disk/a") == bytes);
  EXPECT_EQ(taking_less.bytes_written_directly(), 100'001U);
}

TEST(BlockWriterTest, AFailedWriteIsToldAndNoWriteFollows) {
  const std::string bytes = random_bytes(20 * kBlockBytes + 1);
  // Calls before the blocks' writes: create, and direct I/O turned on.
  for (const int block : {1, 2, 7, 10}) {
    DiskModel disk;
    disk.fail(2 + block, ENOSPC);
    expect_refused([&] { write_in_pieces(disk, bytes); }, "No space left", ErrorCode::kSystem);
    EXPECT_EQ(disk.seen().at("/disk/a")->size(), static_cast<std::size_t>(block - 1) * kWriteBytes);
  }
}

TEST(BlockWriterTest, OneThatIsNotFinishedEnds) {
  DiskModel disk;
  OpenFile file = OpenFile::create(disk, "/disk/a");
  const std::string bytes = random_bytes(6 * kBlockBytes + 5);
  { BlockWriter(file, 100 * kBlockBytes).write(bytes); }
  const std::string found = *disk.seen().at("/disk/a");
  EXPECT_LE(found.size(), 6 * kBlockBytes);
  EXPECT_TRUE(bytes.starts_with(found));
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
