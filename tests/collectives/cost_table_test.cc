// The cost table: what a file may say, and that all ranks must have the same one.
#include "dtrun/collectives/cost_table.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::Error;
using base::ErrorCode;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::error_of;

CostTable table(const std::string& text) {
  return CostTable::parse(text, "costs.json");
}

TEST(CostTableTest, WhatTheFileDoesNotNameIsTheDefault) {
  EXPECT_FALSE(CostTable().is_given());
  EXPECT_EQ(CostTable().limits(), kDefaultLimits);
  EXPECT_EQ(table("{}").limits(), kDefaultLimits);
  EXPECT_TRUE(table("{}").is_given());
  const CostTable one = table(R"({"0": {"latency": 1e-6}, "collectives": {"post_bytes": 512}})");
  WayLimits wanted;
  wanted.post_bytes = 512;
  EXPECT_EQ(one.limits(), wanted);
  // What is written is read.
  WayLimits all{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(table("{\"collectives\": " + json_of(all) + "}").limits(), all);
}

TEST(CostTableTest, ABrokenTableIsNamedWithTheRemedy) {
  const std::pair<const char*, const char*> broken[] = {
      {"{\"collectives\": ", "costs.json"},
      {"[]", "is no object"},
      {R"({"collectives": 3})", "has no object as \"collectives\""},
      {R"({"collectives": {"posts": 3}})", "unknown limit \"posts\""},
      {R"({"collectives": {"post_bytes": -1}})", "has -1 as \"post_bytes\""},
      {R"({"collectives": {"post_bytes": 1.5}})", "as \"post_bytes\""},
      {R"({"collectives": {"post_bytes": "8"}})", "has \"8\" as \"post_bytes\""},
      {R"({"collectives": {"post_bytes": 16385}})", "a number of bytes from 0 to 16384"},
      {R"({"collectives": {"machines_bytes": 0}})", "a number of bytes from 1 to"},
      {R"({"collectives": {"rounds_bytes": 1048577}})", "a number of bytes from 0 to 1048576"},
  };
  for (const auto& [text, says] : broken) {
    const std::optional<Error> error = error_of([&] { table(text); });
    ASSERT_TRUE(error.has_value()) << text;
    EXPECT_THAT(error->what(), HasSubstr(says)) << text;
  }
  const std::optional<Error> absent = error_of([] { CostTable::read("/no/such/table.json"); });
  ASSERT_TRUE(absent.has_value());
  EXPECT_THAT(absent->what(), HasSubstr("/no/such/table.json"));
}

/// What each of two ranks' creation of a group says; the one with that table, the other with that.
std::vector<std::optional<Error>> joined_with(const std::string& first, const std::string& second) {
  const auto store = rendezvous::make_hash_store();
  std::vector<std::optional<Error>> errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      GroupOptions options = test::group_options(store, rank, 2);
      const std::string& text = rank == 0 ? first : second;
      if (!text.empty()) options.costs = table(text);
      errors[static_cast<std::size_t>(rank)] = error_of([&] {
        const ProcessGroup group = ProcessGroup::create(std::move(options));
        const tensors::LocalTensor one = tensors::ones({4});
        group.all_reduce(one);
        EXPECT_EQ(one.data_as<float>()[3], 2);
      });
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(CostTableTest, RanksWithDifferentTablesAllFailAndNameBoth) {
  const std::string a = R"({"collectives": {"post_bytes": 0}})", b = R"({"0": {"latency": 1}})";
  for (const auto& [first, second] : {std::pair{a, b}, {a, std::string()}, {std::string(), b}}) {
    for (const std::optional<Error>& error : joined_with(first, second)) {
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), ErrorCode::kDisagreement);
      EXPECT_THAT(error->what(), AllOf(HasSubstr("disagree about the cost table of group 'world'"),
                                       HasSubstr("costs.json ("), HasSubstr("DTRUN_COST_TABLE")));
    }
  }
  for (const std::string& both : {a, b, std::string()})
    for (const std::optional<Error>& error : joined_with(both, both))
      EXPECT_FALSE(error.has_value()) << error->what();
}

TEST(CostTableTest, AGroupThatIsSplitOffHasIt) {
  test::run_ranks(2, {.costs = R"({"collectives": {"post_bytes": 0}})"},
                  [](const ProcessGroup& group) {
                    const ProcessGroup child = group.split({{0, 1}}, "child");
                    EXPECT_EQ(child.cost_table().limits().post_bytes, 0U);
                    EXPECT_EQ(child.cost_table().text(), group.cost_table().text());
                  });
}

// The files are compared by what they say.
TEST(CostTableTest, TheSameInOtherWordsIsTheSame) {
  const std::string path = testing::TempDir() + "cost_table_test." + std::to_string(::getpid());
  std::ofstream(path) << "{ \"collectives\":\n {\"post_bytes\": 8} }\n";
  const CostTable first = CostTable::read(path);
  std::ofstream(path) << R"({"collectives":{"post_bytes":8}})";
  EXPECT_EQ(first.hash(), CostTable::read(path).hash());
  std::ofstream(path) << R"({"collectives":{"post_bytes":9}})";
  EXPECT_NE(first.hash(), CostTable::read(path).hash());
  std::filesystem::remove(path);
}

TEST(CostTableTest, OneThatCannotBeUsedIsNoOthersEqual) {
  const CostTable unusable = CostTable::unusable("costs.json", "there is no file costs.json");
  EXPECT_TRUE(unusable.is_given());
  EXPECT_NE(unusable.hash(), CostTable().hash());
  EXPECT_NE(unusable.hash(), CostTable::parse("{}", "costs.json").hash());
  EXPECT_EQ(unusable.limits(), WayLimits());
}

}  // namespace
}  // namespace dtrun::collectives
