// What is saved on one mesh comes back on any other: all layouts to all layouts, bit by bit.
#include "dtrun/dtensor/checkpoint/checkpoint.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "checkpoint/commit.h"
#include "checkpoint/read_manifest.h"
#include "dtensor/checkpoint/own_folder.h"
#include "dtensor/layout_catalogue.h"
#include "dtensor/ragged_catalogue.h"
#include "dtensor/refusal.h"
#include "dtrun/collectives/default_group.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/optim/sgd.h"
#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/tensor/ops/reduction.h"
#include "dtrun/tensor/safetensors.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor::dcp {
namespace {

using collectives::ProcessGroup;
namespace fs = std::filesystem;

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> kShapes = {{}, {1}, {7}, {0, 3}, {4, 6}, {3, 2, 5}};
  return kShapes;
}

/// Numbers that say where they stand.
LocalTensor numbers_of(const Shape& shape, DType dtype) {
  const std::int64_t count = tensors::numel(shape);
  return tensors::arange(count, {.dtype = DType::i64}).to(dtype).reshape(shape);
}

LocalTensor box_of(const LocalTensor& whole, const Box& box) {
  LocalTensor part = whole;
  for (std::size_t dim = 0; dim < box.shape.size(); ++dim)
    part = part.narrow(static_cast<int>(dim), std::min(box.offsets[dim], whole.shape()[dim]),
                       box.shape[dim]);
  return part.contiguous();
}

int ranks_of(const std::vector<int>& mesh) {
  int ranks = 1;
  for (const int size : mesh) ranks *= size;
  return ranks;
}

/// Every layout of every shape on the mesh; the dtypes take turns.
struct Kept {
  std::string name;
  LocalTensor whole;
  Placements placements;
  ShardOrder order;
};
std::vector<Kept> all_kept(const std::vector<int>& mesh) {
  const DType dtypes[] = {DType::f32, DType::i64, DType::bf16,    DType::f64, DType::u8,
                          DType::f16, DType::i32, DType::boolean, DType::i16, DType::i8};
  std::vector<Kept> all;
  for (const Shape& shape : shapes()) {
    for (const Layout& layout : all_layouts(shape, mesh, {})) {
      const std::size_t number = all.size();
      all.push_back({"t" + std::to_string(number),
                     numbers_of(shape, dtypes[number % std::size(dtypes)]), layout.placements(),
                     layout.order()});
    }
    const RaggedLayouts ragged = ragged_layouts(shape, mesh, 1, {Replicate()});
    for (std::size_t i = 0; i < ragged.layouts.size(); ++i) {
      if (!ragged.layouts[i].is_ragged()) continue;
      all.push_back({"t" + std::to_string(all.size()), numbers_of(shape, DType::f32),
                     ragged.held[i], ragged.layouts[i].order()});
    }
  }
  return all;
}

Tensor placed(const Kept& kept, const DeviceMesh& mesh) {
  const Spec spec =
      make_spec(mesh, kept.placements, kept.whole.shape(), kept.whole.dtype(), kept.order);
  return {spec, box_of(kept.whole, spec.local_box())};
}

void save_all(const std::string& folder, const std::vector<int>& mesh_shape) {
  const std::vector<Kept> all = all_kept(mesh_shape);
  test::run_ranks(ranks_of(mesh_shape), [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, mesh_shape);
    nn::StateDict tensors;
    for (const Kept& kept : all) tensors.insert(kept.name, placed(kept, mesh));
    // Small shares, so that replicas are cut.
    save(folder, {{"", tensors}}, {.group = group, .split_above = 16});
  });
}

/// Each saved tensor into each layout of the mesh, those with a size per rank as well: other sizes
/// than it was saved with. @return how many of them there were, on all ranks
int expect_loads_everywhere(const std::string& folder, const std::vector<Kept>& saved,
                            const std::vector<int>& mesh_shape) {
  std::map<Shape, RaggedLayouts> ragged;
  for (const Shape& shape : shapes()) {
    const RaggedLayouts all = ragged_layouts(shape, mesh_shape, 2, {Replicate()});
    RaggedLayouts& own = ragged[shape];
    for (std::size_t i = 0; i < all.layouts.size(); ++i) {
      if (!all.layouts[i].is_ragged()) continue;
      own.layouts.push_back(all.layouts[i]);
      own.held.push_back(all.held[i]);
    }
  }
  std::atomic<int> ragged_targets = 0;
  test::run_ranks(ranks_of(mesh_shape), [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, mesh_shape);
    nn::StateDict targets;
    LoadOptions options{.group = group};
    std::vector<std::pair<std::size_t, Tensor>> made;
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const Shape& shape = saved[i].whole.shape();
      const auto add = [&](const Spec& spec) {
        const std::string name = saved[i].name + "/" + std::to_string(made.size());
        const Tensor target(
            spec, tensors::full(spec.local_box().shape, 1, {.dtype = saved[i].whole.dtype()}));
        targets.insert(name, target);
        options.rename[name] = saved[i].name;
        made.emplace_back(i, target);
      };
      for (const Layout& layout : all_layouts(shape, mesh_shape, {}))
        add(make_spec(mesh, layout, shape, saved[i].whole.dtype()));
      // Of the ragged ones each saved tensor has a few, in turns.
      const RaggedLayouts& layouts = ragged.at(shape);
      const std::size_t step = layouts.layouts.size() / 4 + 1;
      for (std::size_t layout = i % step; layout < layouts.layouts.size(); layout += step) {
        add(make_spec(mesh, layouts.held[layout], shape, saved[i].whole.dtype(),
                      layouts.layouts[layout].order()));
        ++ragged_targets;
      }
    }
    load(folder, {{"", targets}}, options);
    for (const auto& [i, tensor] : made) {
      const LocalTensor wanted = box_of(saved[i].whole, tensor.spec().local_box());
      ASSERT_EQ(tensor.local().bytes(), wanted.bytes());
      ASSERT_EQ(std::memcmp(tensor.local().data(), wanted.data(), wanted.bytes()), 0)
          << saved[i].name << " as " << tensor.spec().to_string();
    }
  });
  return ragged_targets;
}

TEST(SaveAndLoadTest, EveryLayoutBecomesEveryLayoutOnAnyMesh) {
  const std::vector<std::vector<int>> meshes = {{1}, {3}, {2, 2}, {4}, {2, 1, 2}, {2, 3}};
  for (const std::vector<int>& from : meshes) {
    const OwnFolder own;
    save_all(own / "saved", from);
    const std::vector<Kept> saved = all_kept(from);
    for (const std::vector<int>& to : meshes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
      // The largest pairs take minutes there.
      if (from.size() + to.size() > 4) continue;
#endif
      const int ragged_targets = expect_loads_everywhere(own / "saved", saved, to);
      EXPECT_TRUE(ranks_of(to) == 1 || ragged_targets > 0);
    }
  }
}

TEST(SaveAndLoadTest, EachRankReadsWhatItNeedsAndWritesItsShare) {
  const OwnFolder own;
  const Shape shape{4096, 1024};
  std::mutex mutex;
  std::map<int, std::uint64_t> written, read;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = zeros(shape, mesh, {Replicate()});
    const SaveReport report = save(own / "a", {{"x", x}}, {.group = group});
    EXPECT_EQ(report.bytes, 16U << 20);
    const std::lock_guard lock(mutex);
    written[group.rank()] = report.own_bytes;
  });
  EXPECT_EQ(written[0] + written[1], 16U << 20);
  EXPECT_EQ(written[0], written[1]);
  test::run_ranks(4, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {4});
    const Tensor x = ones(shape, mesh, {Shard(0)});
    const LoadReport report = load(own / "a", {{"x", x}}, {.group = group});
    EXPECT_EQ(tensors::LocalTensor(x.local()).to_vector()[0], 0);
    const std::lock_guard lock(mutex);
    read[group.rank()] = report.own_bytes;
  });
  for (const auto& [rank, bytes] : read) EXPECT_EQ(bytes, 4U << 20) << rank;
}

TEST(SaveAndLoadTest, ChunksOfManyBlocksComeBackWholeAndInParts) {
  const OwnFolder own;
  const LocalTensor whole = numbers_of({1500, 1031}, DType::f32);  // 6 MB: blocks end within rows
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const Spec spec =
        make_spec(DeviceMesh(group, {3}), Placements{Shard(0)}, whole.shape(), DType::f32);
    save(own / "a", {{"x", Tensor(spec, box_of(whole, spec.local_box()))}}, {.group = group});
  });
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    for (const Placement& placement : Placements{Replicate(), Shard(0), Shard(1)}) {
      const Tensor x = zeros(whole.shape(), mesh, {placement});
      load(own / "a", {{"x", x}}, {.group = group});
      const LocalTensor wanted = box_of(whole, x.spec().local_box());
      ASSERT_EQ(std::memcmp(x.local().data(), wanted.data(), wanted.bytes()), 0)
          << x.spec().to_string();
    }
  });
}

TEST(SaveAndLoadTest, ARankOutsideOfATensorsMeshTakesPart) {
  const OwnFolder own;
  test::run_ranks(3, [&](const ProcessGroup& group) {
    collectives::set_default_group(&group);
    const DeviceMesh mesh("cpu", {0, 2});
    const Tensor x =
        mesh.has_this_rank()
            ? Tensor::from_local(full({2}, mesh.rank(), {}), mesh, {Shard(0)})
            : Tensor::outside(make_spec(mesh, {Shard(0)}, {4}, DType::f32), tensors::kCpu);
    save(own / "a", {{"x", x}});
    if (mesh.has_this_rank()) x.fill_(9);
    load(own / "a", {{"x", x}});
    if (mesh.has_this_rank()) {
      EXPECT_EQ(Tensor(x.local()).to_vector(), std::vector<double>(2, mesh.rank()));
    }
    collectives::set_default_group(nullptr);
  });
}

TEST(SaveAndLoadTest, TheFilesAreSafetensorsThatSayWhereTheirBoxesLie) {
  const OwnFolder own;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = Tensor::from_local(full({1, 2}, group.rank(), {}), mesh, {Shard(0)});
    save(own / "a", {{"x", x}}, {.group = group});
  });
  const tensors::NamedTensors second =
      tensors::load_safetensors(own / "a/shard-00002-of-00002.safetensors");
  EXPECT_EQ(second.at("x").to_vector(), (std::vector<double>{1, 1}));
  EXPECT_EQ(second.metadata.at("DCP_SHARDING_INFO"), R"({"x":{"saved_offsets":[1,0]}})");
  EXPECT_EQ(second.metadata.at("dtrun_boxes"), R"({"x":{"offsets":[1,0],"of":[2,2]}})");
  EXPECT_EQ(second.metadata.at("format"), "pt");
}

TEST(SaveAndLoadTest, ValuesComeBackBitByBit) {
  const OwnFolder own;
  std::int64_t step = std::numeric_limits<std::int64_t>::min();
  double rate = 0.1 + 0.2, none = std::numeric_limits<double>::quiet_NaN(), most = 1.0 / 0.0;
  bool is_on = true;
  std::string text = "\"\n\xc3\xa4\\";
  const State state{{"step", step}, {"rate", rate}, {"none", none},
                    {"most", most}, {"on", is_on},  {"text", text}};
  save(own / "deep/er/a", state);
  step = 0, rate = 0, none = 0, most = 0, is_on = false, text = "";
  load(own / "deep/er/a", state);
  EXPECT_EQ(step, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(rate, 0.1 + 0.2);
  EXPECT_NE(none, none);
  EXPECT_EQ(most, 1.0 / 0.0);
  EXPECT_TRUE(is_on);
  EXPECT_EQ(text, "\"\n\xc3\xa4\\");
}

TEST(SaveAndLoadTest, NumbersTakeTheTargetsDtype) {
  const OwnFolder own;
  save(own / "a", {{"x", tensor({1.5, 2.5})}, {"i", arange(3)}});
  const Tensor x = zeros({2}, {.dtype = DType::bf16}), i = zeros({3}, {.dtype = DType::f64});
  load(own / "a", {{"x", x}, {"i", i}});
  EXPECT_EQ(x.to_vector(), (std::vector<double>{1.5, 2.5}));
  EXPECT_EQ(i.to_vector(), (std::vector<double>{0, 1, 2}));
  const Tensor whole = zeros({2}, {.dtype = DType::i64});
  expect_refused([&] { load(own / "a", {{"x", whole}}); }, "\"x\" is f32[2]");
}

/// Those that have their memory to themselves exchange pages with what was read.
TEST(SaveAndLoadTest, LargeTensorsComeBackWhereTheyAre) {
  const OwnFolder own;
  const std::int64_t rows = 3, columns = (std::int64_t{1} << 20) + 5;  // 4 MiB and some a row
  const LocalTensor numbers = numbers_of({rows, columns}, DType::f32);
  const auto zeros_of = [](const Shape& shape, DType dtype = DType::f32) {
    return tensors::zeros(shape, {.dtype = dtype});
  };
  save(own / "a", {{"x", Tensor(numbers)}});
  const LocalTensor buffer = zeros_of({2 * rows, columns});
  const LocalTensor whole = zeros_of({rows, columns});
  const LocalTensor targets[] = {whole,
                                 whole,  // under two names
                                 buffer.narrow(0, 0, rows),
                                 buffer.narrow(0, rows, rows),
                                 zeros_of({columns, rows}).transpose(0, 1),
                                 zeros_of({rows, columns}, DType::f64)};
  State state;
  LoadOptions options;
  std::vector<const void*> places;
  for (const LocalTensor& target : targets) {
    const std::string name = "x" + std::to_string(places.size());
    state.add({name, Tensor(target)});
    options.rename[name] = "x";
    places.push_back(target.data());
  }
  const std::uint32_t version = whole.storage()->version();
  for (int round = 0; round < 2; ++round) {
    for (const LocalTensor& target : targets) target.fill_(-1);
    load(own / "a", state, options);
    for (std::size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(targets[i].data(), places[i]);
      EXPECT_TRUE(tensors::equal(targets[i].to(DType::f32), numbers)) << i;
    }
  }
  EXPECT_GT(whole.storage()->version(), version);
  // What is damaged reaches none.
  for (const LocalTensor& target : targets) target.fill_(-1);
  const std::string file = own / "a/shard-00001-of-00001.safetensors";
  std::string content = content_of(file);
  content[content.size() - 1000] ^= 1;
  write_content(file, content);
  expect_refused([&] { load(own / "a", state, options); }, "is damaged",
                 base::ErrorCode::kProtocol);
  for (const LocalTensor& target : targets) {
    EXPECT_EQ(tensors::max(target).item(), -1);
    EXPECT_EQ(tensors::min(target).item(), -1);
  }
}

TEST(SaveAndLoadTest, PartsAndOtherNamesAreChosenByPattern) {
  const OwnFolder own;
  save(own / "a", {{"model", nn::StateDict{{"a.w", full({2}, 1, {})}, {"b.w", full({2}, 2, {})}}},
                   {"top", full({}, 3, {})}});
  const Tensor a = zeros({2}), b = zeros({2}), top = zeros({});
  const State state{{"net", nn::StateDict{{"a.w", a}, {"b.w", b}}}, {"head", top}};
  expect_refused([&] { load(own / "a", state); }, "lacks net.a.w, net.b.w, head");
  load(own / "a", state,
       {.only = {"*.b.*", "head"}, .rename = {{"net.", "model."}, {"head", "top"}}});
  EXPECT_EQ(a.to_vector(), (std::vector<double>{0, 0}));
  EXPECT_EQ(b.to_vector(), (std::vector<double>{2, 2}));
  EXPECT_EQ(top.item(), 3);
  const LoadReport report =
      load(own / "a", {{"model", nn::StateDict{{"a.w", a}, {"c", b}}}}, {.allow_missing = true});
  EXPECT_EQ(report.missing, std::vector<std::string>{"model.c"});
  EXPECT_EQ(a.to_vector(), (std::vector<double>{1, 1}));
  EXPECT_EQ(b.to_vector(), (std::vector<double>{2, 2}));
}

TEST(SaveAndLoadTest, WhatCannotBeSavedIsToldToAllRanksAndLeavesNothing) {
  const OwnFolder own;
  const auto failing = [&](int ranks, const test::RankBody& body) {
    std::vector<std::string> texts;
    for (const auto& thrown : test::run_failing_ranks(ranks, {}, body)) {
      EXPECT_TRUE(thrown.has_value());
      texts.push_back(thrown ? thrown->text : "");
    }
    for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
    EXPECT_TRUE(fs::is_empty(own.path()));
    return texts[0];
  };
  const auto saved = [&](const ProcessGroup& group, const State& state) {
    save(own / "a", state, {.group = group});
  };
  EXPECT_NE(failing(2,
                    [&](const ProcessGroup& group) {
                      const DeviceMesh mesh(group, {2});
                      saved(group, {{"x", Tensor::from_local(ones({2}), mesh, {Partial()})}});
                    })
                .find("it is Partial"),
            std::string::npos);
  EXPECT_NE(failing(3,
                    [&](const ProcessGroup& group) {
                      saved(group, {{"x", group.rank() == 1 ? Tensor() : ones({2})}});
                    })
                .find("rank 1: a checkpoint cannot have \"x\""),
            std::string::npos);
  EXPECT_NE(failing(2,
                    [&](const ProcessGroup& group) {
                      saved(group, {{"x", ones({2 + group.rank()})}});
                    })
                .find("f32[3] on rank 1 and f32[2]"),
            std::string::npos);
  EXPECT_NE(failing(2,
                    [&](const ProcessGroup& group) {
                      std::int64_t step = group.rank();
                      saved(group, {{"step", step}});
                    })
                .find("\"step\" is 1 on rank 1 and 0"),
            std::string::npos);
  for (const int without : {0, 1}) {
    EXPECT_NE(failing(2,
                      [&](const ProcessGroup& group) {
                        State state{{"x", ones({2})}};
                        if (group.rank() != without) state.add({"random", ThreadRandom{}});
                        saved(group, state);
                      })
                  .find("not all ranks save \"random."),
              std::string::npos);
  }
  expect_refused([&] { State({{"x", ones({1})}, {"x", ones({1})}}); }, "twice");
  expect_refused(
      [&] {
        save(own / "a", {{"x.y", ones({1})}, {"x", nn::StateDict{{"y", ones({1})}}}});
      },
      "\"x.y\" twice");
  for (const char* const path : {"", "/", "a/..", "."}) {
    expect_refused([&] { save(path, {{"x", ones({1})}}); }, "does not name");
    expect_refused([&] { load(path, {{"x", ones({1})}}); }, "does not name");
  }
}

TEST(SaveAndLoadTest, WhatDoesNotFitIsRefusedAndNothingIsWritten) {
  const OwnFolder own;
  std::int64_t step = 3;
  save(own / "a", {{"x", ones({2})}, {"y", ones({3})}, {"step", step}});
  const Tensor x = zeros({2}), y = zeros({4});
  expect_refused([&] { load(own / "a", {{"x", x}, {"y", y}}); }, "\"y\" is f32[3]");
  double rate = 0;
  expect_refused([&] { load(own / "a", {{"x", x}, {"step", rate}}); }, "\"step\" is 3");
  expect_refused([&] { load(own / "a", {{"x", x}, {"y", Tensor()}}); }, "undefined");
  expect_refused(
      [&] {
        load(own / "none", {{"x", x}});
      },
      "no checkpoint", base::ErrorCode::kNotFound);
  const auto thrown = test::run_failing_ranks(2, {}, [&](const ProcessGroup& group) {
    load(own / "a", {{"x", group.rank() == 1 ? y : x}}, {.group = group});
  });
  for (const auto& one : thrown) {
    ASSERT_TRUE(one.has_value());
    EXPECT_NE(one->text.find("rank 1: \"x\" is f32[2]"), std::string::npos) << one->text;
  }
  EXPECT_EQ(x.to_vector(), (std::vector<double>{0, 0}));
}

TEST(SaveAndLoadTest, AnOldCheckpointIsReplacedAtOnceWhereThatIsWanted) {
  const OwnFolder own;
  const Tensor x = ones({2});
  save(own / "a/", {{"x", x}});
  expect_refused([&] { save(own / "a", {{"x", x}}); }, "is there already");
  x.fill_(2);
  save(own / "a", {{"x", x}}, {.existing = Existing::replace});
  x.fill_(0);
  load(own / "a", {{"x", x}});
  EXPECT_EQ(x.to_vector(), (std::vector<double>{2, 2}));
  // Folders that are not checkpoints are somebody's.
  fs::create_directory(own / "b");
  write_content(own / "b/thesis.txt", "years");
  expect_refused(
      [&] {
        save(own / "b", {{"x", x}}, {.existing = Existing::replace});
      },
      "is no checkpoint, and is not replaced");
  EXPECT_EQ(content_of(own / "b/thesis.txt"), "years");
  EXPECT_EQ(std::distance(fs::directory_iterator(own.path()), {}), 2);
}

TEST(SaveAndLoadTest, WhatKilledSavesLeftGoesAndWhatASaveHoldsStays) {
  const OwnFolder own;
  const std::string stale = partial_name(own / "a", 1), held = partial_name(own / "a", 2),
                    other = partial_name(own / "b", 3);
  for (const std::string& folder : {stale, held, other}) {
    fs::create_directory(folder);
    write_content(folder + "/shard-00001-of-00001.safetensors", "half");
  }
  SystemFileCalls files;
  OpenFile lock = OpenFile::open_folder(files, held);
  EXPECT_EQ(lock.try_lock(), Lock::held);
  save(own / "a", {{"x", ones({2})}});
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(held));
  EXPECT_TRUE(fs::exists(other));
}

TEST(SaveAndLoadTest, RanksCanAgreeThroughAStore) {
  const OwnFolder own;
  const auto store = rendezvous::make_hash_store();
  test::run_ranks(3, [&](const ProcessGroup& group) {
    StoreAgreement agreement(store, "saves", group.rank(), group.size());
    const Tensor x = full({2}, 4, {});
    for (const char* const name : {"a", "b"})
      save(own / name, {{"x", x}}, {.agreement = &agreement});
    x.fill_(0);
    load(own / "b", {{"x", x}}, {.agreement = &agreement});
    EXPECT_EQ(x.to_vector(), (std::vector<double>{4, 4}));
  });
  // Each rank's last word, which others may still read, is all that stays.
  // And how many agreements of the name it has made.
  EXPECT_LE(store->list_keys().size(), 6U);
}

/// A folder's files, without the number of the save and the checksums that it is part of.
std::map<std::string, std::string> contents_without_generation(const std::string& folder) {
  std::map<std::string, std::string> contents;
  SystemFileCalls files;
  Manifest manifest = read_manifest(files, folder);
  const std::string generation = fmt::format("{:016x}", manifest.generation);
  for (SavedFile& file : manifest.files) {
    std::string content = content_of(folder + "/" + file.name);
    const std::size_t at = content.find(generation);
    EXPECT_LT(at, file.header_bytes) << "a shard of another save";
    if (at != std::string::npos) content.replace(at, generation.size(), "");
    contents[file.name] = content;
    file.header_checksum = 0;
  }
  manifest.generation = 0;
  contents["manifest"] = manifest_text(manifest);
  return contents;
}

// One code with two ways to say a word to the others: what ranks write is the same, of one save.
TEST(SaveAndLoadTest, AGroupAndAStoreAgreeOnTheSameCheckpoint) {
  const OwnFolder own;
  const auto store = rendezvous::make_hash_store();
  test::run_ranks(3, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {3});
    double rate = 0.5;
    const State state{{"cut", full({7, 3}, 2, mesh, {Shard(0)})},
                      {"same", full({30}, 3, mesh, {Replicate()})},
                      {"random", ThreadRandom()},
                      {"rate", rate}};
    save(own / "group", state, {.group = group, .split_above = 16});
    StoreAgreement agreement(store, "saves", group.rank(), group.size());
    save(own / "store", state, {.agreement = &agreement, .split_above = 16});
  });
  const auto by_group = contents_without_generation(own / "group");
  EXPECT_EQ(by_group.size(), 4U);
  EXPECT_EQ(by_group, contents_without_generation(own / "store"));
}

TEST(SaveAndLoadTest, ASecondAgreementOfANameReadsNothingOfTheFirst) {
  const auto store = rendezvous::make_hash_store();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    for (const char* const word : {"first", "second"}) {
      StoreAgreement agreement(store, "saves", group.rank(), group.size());
      EXPECT_EQ(agreement.exchange(word), std::vector<std::string>(2, word));
    }
  });
}

TEST(SaveAndLoadTest, AfterAnExchangeThatFailedRanksAreOutOfStep) {
  StoreAgreement agreement(rendezvous::make_hash_store(), "saves", 0, 2,
                           std::chrono::milliseconds(1));
  expect_refused([&] { agreement.exchange("a"); }, "/1/0/1", base::ErrorCode::kTimeout);
  expect_refused([&] { agreement.exchange("a"); }, "are out of step", base::ErrorCode::kConnection);
}

TEST(SaveAndLoadTest, NumbersThatAreNoneAreTheSameOnAllRanks) {
  const OwnFolder own;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    double odd = std::numeric_limits<double>::quiet_NaN(), other = -0.0;
    save(own / "a", {{"odd", odd}, {"other", other}}, {.group = group});
    odd = 1, other = 1;
    load(own / "a", {{"odd", odd}, {"other", other}}, {.group = group});
    EXPECT_TRUE(std::isnan(odd));
    EXPECT_TRUE(other == 0 && std::signbit(other));
  });
  const auto thrown = test::run_failing_ranks(2, {}, [&](const ProcessGroup& group) {
    save(own / "b", {{"x", ones({2})}},
         {.group = group, .split_above = group.rank() == 0 ? 16U : 32U});
  });
  for (const auto& one : thrown) {
    ASSERT_TRUE(one.has_value());
    EXPECT_EQ(one->code, base::ErrorCode::kDisagreement);
    EXPECT_NE(one->text.find("rank 1 saves with split_above = 32"), std::string::npos) << one->text;
  }
}

TEST(SaveAndLoadTest, WhatIsRestoredAsOneIsChosenAsOneOrStays) {
  const OwnFolder own;
  const Tensor weight = ones({2}), x = ones({2});
  weight.requires_grad_();
  optim::SGD optimizer({weight}, {.lr = 0.5});
  save(own / "a", {{"optimizer", optimizer}, {"x", x}});
  optimizer.set_lr(0.25);
  x.fill_(0);
  load(own / "a", {{"optimizer", optimizer}, {"x", x}},
       {.only = {"optimizer.param_groups.*", "x"}});
  EXPECT_EQ(optimizer.lr(), 0.25);
  EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 1}));
  load(own / "a", {{"optimizer", optimizer}, {"x", x}}, {.only = {"optimizer.*"}});
  EXPECT_EQ(optimizer.lr(), 0.5);
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
