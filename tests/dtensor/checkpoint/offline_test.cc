// What one process makes of a checkpoint: the same tensors in every form, damage and differences
// named, and hostile files refused.
#include "dtrun/dtensor/checkpoint/offline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "checkpoint/commit.h"
#include "dtensor/checkpoint/own_folder.h"
#include "dtensor/layout_catalogue.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/checkpoint/plan.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/npy.h"
#include "dtrun/tensor/safetensors.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::dcp {
namespace {

using collectives::ProcessGroup;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
namespace fs = std::filesystem;

class OfflineTest : public testing::Test {
 protected:
  /// Saved by four ranks: columns, rows, a replica, a number, halves.
  OfflineTest() {
    test::run_ranks(4, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, {2, 2});
      const auto on_mesh = [&](const LocalTensor& whole, const Placements& placements) {
        return distribute_tensor(whole, mesh, placements, {.source_rank = -1});
      };
      std::int64_t step = 7;
      save(folder(),
           {{"columns", on_mesh(numbers({6, 10}), {Replicate(), Shard(1)})},
            {"rows", on_mesh(numbers({9, 3}), {Shard(0), Shard(0)})},
            {"whole", on_mesh(numbers({4}), {Replicate(), Replicate()})},
            {"number", tensor_from(std::vector<double>{5}, {}, DType::f64)},
            {"halves", on_mesh(numbers({5}).to(DType::bf16), {Shard(0), Replicate()})},
            {"none", on_mesh(numbers({0, 2}), {Shard(0), Replicate()})},
            {"step", step}},
           {.group = group, .split_above = 16});
    });
  }
  static LocalTensor numbers(const Shape& shape) {
    return tensors::arange(tensors::numel(shape), {.dtype = DType::f32}).reshape(shape);
  }
  std::string folder() const { return own_ / "saved"; }
  static void expect_same(const LocalTensor& found, const LocalTensor& wanted) {
    ASSERT_EQ(found.shape(), wanted.shape());
    ASSERT_EQ(found.dtype(), wanted.dtype());
    EXPECT_EQ(std::memcmp(found.data(), wanted.data(), wanted.bytes()), 0);
  }
  const OwnFolder own_;
};

TEST_F(OfflineTest, MergedTensorsAreWholeInOneFile) {
  Archive from(folder());
  std::uint64_t last = 0, all = 0;
  merge(from, own_ / "merged.safetensors",
        {.progress = [&](std::uint64_t done, std::uint64_t of) { last = done, all = of; }});
  EXPECT_EQ(last, all);
  EXPECT_EQ(all, from.bytes());
  const tensors::NamedTensors merged = tensors::load_safetensors(own_ / "merged.safetensors");
  expect_same(merged.at("columns"), numbers({6, 10}));
  expect_same(merged.at("rows"), numbers({9, 3}));
  expect_same(merged.at("whole"), numbers({4}));
  expect_same(merged.at("halves"), numbers({5}).to(DType::bf16));
  expect_same(merged.at("none"), numbers({0, 2}));
  EXPECT_EQ(merged.at("number").item(), 5);
  merge(from, own_ / "some.safetensors", {.only = {"*ows"}});
  EXPECT_THAT(tensors::load_safetensors(own_ / "some.safetensors").tensors, SizeIs(1));
  expect_refused([&] { merge(from, own_ / "some.safetensors"); }, "is there already");
  expect_refused([&] { merge(from, own_ / "x.safetensors", {.only = {"y"}}); }, "no tensor of");
}

/// One tensor of each shape.
nn::StateDict tensors_to_merge(const std::function<Tensor(const LocalTensor& whole)>& place) {
  const std::vector<Shape> shapes = {{}, {1}, {7}, {0, 3}, {4, 6}, {3, 2, 5}};
  const DType dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::i64, DType::u8, DType::f32};
  nn::StateDict tensors;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const LocalTensor numbers = tensors::arange(tensors::numel(shapes[i]), {.dtype = DType::i64});
    tensors.insert("t" + std::to_string(i), place(numbers.to(dtypes[i]).reshape(shapes[i])));
  }
  return tensors;
}

// Whoever has saved it, and however it lay.
// Every layout that a file can have: a Partial tensor is refused (save_and_load_test.cc).
TEST(MergedFileTest, IsTheSameByteForByteForEveryMeshAndLayout) {
  const OwnFolder own;
  const auto merged = [&](const std::string& name) {
    Archive saved(own / name);
    merge(saved, own / (name + ".safetensors"));
    return content_of(own / (name + ".safetensors"));
  };
  save(own / "one",
       {{"", tensors_to_merge([](const LocalTensor& whole) { return Tensor(whole); })}});
  const std::string expected = merged("one");
  std::size_t files = 0;
  const auto expect_merged = [&](const std::vector<int>& mesh_shape, std::size_t number) {
    int ranks = 1;
    for (const int size : mesh_shape) ranks *= size;
    const std::string name = std::to_string(files++);
    test::run_ranks(ranks, [&](const ProcessGroup& group) {
      const DeviceMesh mesh(group, mesh_shape);
      const nn::StateDict tensors = tensors_to_merge([&](const LocalTensor& whole) {
        const std::vector<Layout> layouts = all_layouts(whole.shape(), mesh_shape, {});
        const Layout& layout = layouts[number % layouts.size()];
        return distribute_tensor(whole, mesh, layout.placements(),
                                 {.source_rank = -1, .shard_order = layout.order()});
      });
      // Small shares, so that replicas are cut.
      save(own / name, {{"", tensors}}, {.group = group, .split_above = 16});
    });
    EXPECT_TRUE(merged(name) == expected) << "layout " << number << " of " << ranks << " ranks";
  };
  for (const std::vector<int>& mesh_shape :
       {std::vector<int>{2}, {4}, {2, 2}, {3, 2}, {2, 2, 2}, {2, 1, 2, 2}}) {
    const std::size_t most = all_layouts({3, 2, 5}, mesh_shape, {}).size();
    // Of three and four axes some, each with another layout of every tensor.
    const std::size_t one_in = mesh_shape.size() > 2 ? most / 10 : 1;
    for (std::size_t number = 0; number < most; number += one_in) expect_merged(mesh_shape, number);
  }
  std::printf("%zu merged files, each of %zu bytes\n", files, expected.size());
  EXPECT_GT(files, 40U);
}

TEST_F(OfflineTest, ShardsOfWholeTensorsHaveAnIndexAndAreReadAgain) {
  Archive from(folder());
  split(from, own_ / "split", 300);
  EXPECT_THAT(content_of(own_ / "split/model.safetensors.index.json"),
              HasSubstr(R"("rows":"model-00002-of-00002.safetensors")"));
  Archive again(own_ / "split");
  EXPECT_EQ(again.kind(), ArchiveKind::safetensors_folder);
  EXPECT_THAT(diff(from, again, {.only = {"*s", "no*", "number", "whole"}}), SizeIs(0));
  const VerifyReport report = verify(own_ / "split");
  EXPECT_FALSE(report.has_checksums);
  EXPECT_EQ(report.bytes, from.bytes());
}

TEST_F(OfflineTest, RanksLoadWhatTheyNeedOfHuggingFacesShards) {
  Archive from(folder());
  split(from, own_ / "split", 300);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor columns = zeros({6, 10}, mesh, {Shard(0)}), rows = zeros({9, 3}, mesh, {Shard(1)});
    const LoadReport report =
        load(own_ / "split", {{"model.columns", columns}, {"model.rows", rows}},
             {.source = Source::safetensors, .group = group, .rename = {{"model.", ""}}});
    expect_same(columns.full_tensor().local(), numbers({6, 10}));
    expect_same(rows.full_tensor().local(), numbers({9, 3}));
    EXPECT_LE(report.own_bytes, 6U * 10 * 4 + 9 * 3 * 4);
  });
  expect_refused(
      [&] {
        load(own_ / "split", {{"rows", zeros({9, 3})}});
      },
      "no manifest.json", base::ErrorCode::kNotFound);
  expect_refused(
      [&] {
        load(own_ / "none", {{"rows", zeros({9, 3})}}, {.source = Source::safetensors});
      },
      "no .safetensors file", base::ErrorCode::kNotFound);
}

// Models on HuggingFace's hub often have the same tensors once more, in one file that no index
// names.
TEST_F(OfflineTest, AnIndexSaysWhichFilesOfAFolderAreRead) {
  Archive from(folder());
  split(from, own_ / "split", 300);
  merge(from, own_ / "split/consolidated.safetensors");
  const std::string index = own_ / "split/model.safetensors.index.json",
                    variant = own_ / "split/model.fp16.safetensors.index.json";
  const std::string whole = content_of(index);
  write_content(variant, "not looked at");
  Archive model(own_ / "split");
  EXPECT_THAT(diff(from, model, {.only = {"rows", "columns", "number", "whole"}}), SizeIs(0));
  const auto refused = [&](const char* why, base::ErrorCode code) {
    expect_refused([&] { Archive(own_ / "split"); }, why, code);
  };
  write_content(index, R"({"weight_map":{"rows":"consolidated.safetensors"}})");
  Archive other(own_ / "split");
  EXPECT_THAT(diff(from, other, {.only = {"rows"}}), SizeIs(0));
  write_content(index, R"({"weight_map":{"rose":"consolidated.safetensors"}})");
  refused("lacks \"rose\"", base::ErrorCode::kProtocol);
  write_content(index, R"({"weight_map":{"rows":"../foreign/a.safetensors"}})");
  refused("no .safetensors file of its folder", base::ErrorCode::kProtocol);
  write_content(index, R"({"weight_map":{"rows":"model.safetensors"}})");
  refused("model.safetensors.index.json names it", base::ErrorCode::kNotFound);
  write_content(index, R"({"weight_map":{}})");
  refused("it names no tensor", base::ErrorCode::kProtocol);
  write_content(index, "[]");
  refused("it has no weight_map", base::ErrorCode::kProtocol);
  write_content(index, whole);
  fs::rename(own_ / "split/consolidated.safetensors", own_ / "split/model.safetensors");
  refused("model.safetensors.index.json and model.safetensors", base::ErrorCode::kInvalidArgument);
  fs::remove(own_ / "split/model.safetensors");
  // An index of a variant, alone: of all files, or of some.
  fs::rename(index, variant);
  Archive of_variant(own_ / "split");
  EXPECT_THAT(diff(from, of_variant, {.only = {"rows"}}), SizeIs(0));
  merge(from, own_ / "split/model.safetensors");
  refused("model.fp16.safetensors.index.json and model.safetensors",
          base::ErrorCode::kInvalidArgument);
  write_content(own_ / "split/other.safetensors.index.json", whole);
  refused("and other.safetensors.index.json", base::ErrorCode::kInvalidArgument);
}

TEST_F(OfflineTest, ShardsOfACheckpointAreReadWithoutItsManifest) {
  Archive from(folder());
  fs::copy(folder(), own_ / "foreign");
  fs::remove(own_ / "foreign/manifest.json");
  Archive foreign(own_ / "foreign");
  EXPECT_EQ(foreign.kind(), ArchiveKind::safetensors_folder);
  // Tensors without elements are in no shard, and values in the manifest only.
  EXPECT_THAT(diff(from, foreign, {.only = {"*s", "number", "whole"}}), SizeIs(0));
  fs::remove(own_ / "foreign/shard-00002-of-00004.safetensors");
  expect_refused([&] { Archive(own_ / "foreign"); }, "lack", base::ErrorCode::kProtocol);
}

TEST_F(OfflineTest, AReshardedCheckpointIsOneThatOtherRanksCouldHaveSaved) {
  Archive from(folder());
  reshard(from, own_ / "on6", {2, 3}, {{"columns", "[R, S01]"}, {"wh*", "[R, R]"}});
  Archive again(own_ / "on6");
  EXPECT_THAT(diff(from, again), SizeIs(0));
  EXPECT_THAT(verify(own_ / "on6").faults, SizeIs(0));
  EXPECT_THAT(again.tensor("columns").chunks, SizeIs(6));  // of 2, 2, 1, 2, 2, 1 columns
  EXPECT_THAT(again.tensor("whole").chunks, SizeIs(1));
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    const Tensor rows = zeros({9, 3}, mesh, {Shard(1)});
    std::int64_t step = 0;
    load(own_ / "on6", {{"rows", rows}, {"step", step}}, {.group = group});
    EXPECT_EQ(step, 7);
    expect_same(rows.full_tensor().local(), numbers({9, 3}));
  });
  expect_refused([&] { reshard(from, own_ / "x", {0}, {}); }, "no such mesh");
  expect_refused([&] { reshard(from, own_ / "x", {}, {}); }, "a mesh of 0 axes");
  expect_refused([&] { reshard(from, own_ / "x", {2}, {{"*", "P"}}); }, "is not Partial");
  EXPECT_FALSE(fs::exists(own_ / "x"));
}

TEST_F(OfflineTest, OneTensorBecomesNumpysFile) {
  Archive from(folder());
  for (const char* name : {"columns", "whole", "number", "none"}) {
    export_npy(from, name, own_ / (std::string(name) + ".npy"));
    const LocalTensor found = tensors::load_npy(own_ / (std::string(name) + ".npy"));
    EXPECT_EQ(found.shape(), from.tensor(name).shape);
  }
  expect_same(tensors::load_npy(own_ / "columns.npy"), numbers({6, 10}));
  expect_refused([&] { export_npy(from, "halves", own_ / "h.npy"); }, "numpy has no bf16");
  expect_refused([&] { export_npy(from, "row", own_ / "h.npy"); }, "no tensor \"row\"",
                 base::ErrorCode::kNotFound);
}

TEST_F(OfflineTest, DifferencesAreNamed) {
  const LocalTensor other = numbers({9, 3}).clone();
  other.select(0, 4).fill_(100);
  std::int64_t step = 8;
  save(own_ / "other", {{"rows", Tensor(other)},
                        {"whole", Tensor(numbers({5}))},
                        {"halves", Tensor(numbers({5}))},
                        {"more", Tensor(numbers({1}))},
                        {"step", step}});
  Archive a(folder()), b(own_ / "other");
  std::vector<std::string> texts;
  for (const TensorDifference& one : diff(a, b)) texts.push_back(one.name + ": " + one.text);
  EXPECT_THAT(
      texts, ElementsAre("columns: only in " + folder(), "halves: bf16[5] and f32[5]",
                         "none: only in " + folder(), "number: only in " + folder(),
                         "rows: 3 of 27 elements differ, by 88 at most", "whole: f32[4] and f32[5]",
                         "more: only in " + (own_ / "other"), "step: 7 and 8"));
}

TEST_F(OfflineTest, EveryFaultIsNamed) {
  EXPECT_THAT(verify(folder()).faults, SizeIs(0));
  const std::string name = "shard-00001-of-00004.safetensors", file = folder() + "/" + name;
  const std::string whole = content_of(file);
  std::string bytes = whole;
  bytes.back() ^= 4;
  write_content(file, bytes);
  std::vector<Fault> faults = verify(folder()).faults;
  ASSERT_THAT(faults, SizeIs(1));
  EXPECT_THAT(faults[0].text, HasSubstr("is damaged: bytes"));
  bytes = whole;
  bytes[20] ^= 4;
  write_content(file, bytes);
  faults = verify(folder()).faults;
  ASSERT_GE(faults.size(), 2U);
  EXPECT_THAT(faults[0].text, HasSubstr("the header of"));
  EXPECT_THAT(faults[1].text, HasSubstr("lies in " + name));
  fs::remove(file);
  EXPECT_THAT(verify(folder()).faults[0].text, HasSubstr("is not there"));
}

TEST_F(OfflineTest, TheLastCompleteOnesOfASeriesStay) {
  SystemFileCalls files;
  for (int step = 1; step <= 5; ++step)
    save(own_ / ("runs/step-" + std::to_string(step)), {{"x", ones({2})}});
  write_content(own_ / "runs/step-4/manifest.json", "?");
  const std::string left = partial_name(own_ / "runs/step-9", 3);
  fs::create_directory(left);
  const std::vector<std::string> gone = prunable(own_ / "runs", 2, files);
  EXPECT_THAT(gone, ElementsAre(own_ / "runs/step-2", own_ / "runs/step-1", left));
  for (const std::string& path : gone) remove_checkpoint(path, files);
  EXPECT_EQ(std::distance(fs::directory_iterator(own_ / "runs"), {}), 3);
  EXPECT_THAT(prunable(own_ / "runs", 0, files), SizeIs(0));
  // A killed merge leaves a file; a save that goes on has its folder.
  write_content(own_ / "runs/.model.safetensors.0123456789abcdef.partial", "half");
  fs::create_directory(left);
  {
    OpenFile lock = OpenFile::open_folder(files, left);
    EXPECT_EQ(lock.try_lock(), Lock::held);
    EXPECT_THAT(prunable(own_ / "runs", 2, files), SizeIs(0));
    EXPECT_FALSE(remove_checkpoint(left, files));
  }
  EXPECT_THAT(prunable(own_ / "runs", 2, files), ElementsAre(left));
  EXPECT_TRUE(remove_checkpoint(left, files));
  EXPECT_THAT(prunable(own_ / "nowhere", 1, files), SizeIs(0));
}

TEST(SlabsTest, AreAllOfABoxInItsOrder) {
  for (const std::uint64_t most : {1, 8, 20, 24, 100, 1000}) {
    const Box box{{1, 2, 3}, {3, 2, 5}};
    std::int64_t elements = 0;
    ByteRuns whole(box, box, 4);
    std::uint64_t at = 0;
    for (const Box& slab : slabs_of(box, 4, most)) {
      const auto bytes = static_cast<std::uint64_t>(tensors::numel(slab.shape)) * 4;
      EXPECT_LE(bytes, std::max<std::uint64_t>(most, 4));
      ByteRuns runs(slab, box, 4);
      const auto run = runs.next();
      ASSERT_TRUE(run.has_value());
      EXPECT_EQ(run->to, at);
      EXPECT_EQ(run->bytes, bytes);
      at += bytes;
      elements += tensors::numel(slab.shape);
    }
    EXPECT_EQ(elements, 30);
  }
  EXPECT_THAT(slabs_of({{}, {}}, 8, 1), SizeIs(1));
  EXPECT_THAT(slabs_of({{0}, {0}}, 8, 1), SizeIs(0));
}

TEST(ForeignTest, WhatIsNoneIsRefusedAndPicklesAreNotExecuted) {
  const OwnFolder own;
  expect_refused([&] { Archive(own / "a"); }, "is not there", base::ErrorCode::kNotFound);
  expect_refused([&] { Archive(own.path()); }, "no manifest.json and no .safetensors",
                 base::ErrorCode::kNotFound);
  write_content(own / ".metadata", "\x80\x04");
  expect_refused([&] { Archive(own.path()); }, "names Python classes", base::ErrorCode::kNotFound);
  const auto write = [&](const std::string& name, const std::string& boxes, const Shape& shape) {
    tensors::save_safetensors(own / name,
                              {{{"x", tensors::zeros(shape)}}, {{"DCP_SHARDING_INFO", boxes}}});
  };
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"[]", "is no object"},
      {R"({"x":{}})", "no saved_offsets for x"},
      {R"({"x":{"saved_offsets":[-1,0]}})", "no place for x"},
      {R"({"x":{"saved_offsets":[0]}})", "another number of dims"},
      {R"({"x":{"saved_offsets":[9223372036854775807,0]}})", "larger than any memory"},
      {R"({"x":{"saved_offsets":[4611686018427387904,4]}})", "larger than any memory"},
      {R"({"x":{"saved_offsets":[1,0]}})", "lack 2 of its elements"},
      {R"({"x":{"saved_offsets":[0,0]},"x":{"saved_offsets":[0,0]}})", "stands twice"}};
  for (const auto& [boxes, why] : wrong) {
    write("a.safetensors", boxes, {1, 2});
    expect_refused([&] { Archive(own.path()); }, why, base::ErrorCode::kProtocol);
  }
  write("a.safetensors", R"({"x":{"saved_offsets":[0,0]}})", {2, 2});
  write("b.safetensors", R"({"x":{"saved_offsets":[1,0]}})", {2, 2});
  expect_refused([&] { Archive(own.path()); }, "overlap", base::ErrorCode::kProtocol);
  write("b.safetensors", "{}", {2});
  expect_refused([&] { Archive(own.path()); }, "differs from file to file",
                 base::ErrorCode::kProtocol);
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
