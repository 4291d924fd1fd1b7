// A barrier and an all_gather over every kind of store.
#include "dtrun/rendezvous/store_collectives.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>

#include "dtrun/rendezvous/file_store.h"
#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/rendezvous/prefix_store.h"
#include "rendezvous/early_and_late.h"
#include "rendezvous/served_store.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::ErrorCode;
using testing_support::contains;
using testing_support::error_of;

constexpr int kWorld = 5;

// Each rank with a store of its own, as processes would have.
void on_ranks(const std::function<std::shared_ptr<Store>()>& open,
              const std::function<void(StoreCollectives&, int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorld; ++rank)
    threads.emplace_back([&, rank] {
      StoreCollectives group(open(), "group", rank, kWorld);
      body(group, rank);
    });
  for (std::thread& thread : threads) thread.join();
}

void meet_again_and_again(const std::function<std::shared_ptr<Store>()>& open) {
  constexpr int kRounds = 20;
  std::atomic<int> arrived{0};
  on_ranks(open, [&](StoreCollectives& group, int rank) {
    for (int round = 1; round <= kRounds; ++round) {
      ++arrived;
      group.barrier(late());
      EXPECT_GE(arrived.load(), round * kWorld);
      const std::string mine = std::to_string(round) + std::string(1, '\0') + std::to_string(rank);
      const std::vector<std::string> all = group.all_gather(mine, late());
      ASSERT_EQ(all.size(), static_cast<std::size_t>(kWorld));
      EXPECT_EQ(all[static_cast<std::size_t>(rank)], mine);
      for (const std::string& value : all)
        EXPECT_TRUE(value.starts_with(std::to_string(round) + std::string(1, '\0')));
    }
  });
  EXPECT_EQ(arrived.load(), kRounds * kWorld);
  // What is left is of the last calls, and of ranks that ended between.
  EXPECT_LE(open()->list_keys().size(), 3u * kWorld);
}

TEST(StoreCollectivesTest, RanksMeetAgainAndAgainOverEveryStore) {
  const auto in_memory = make_hash_store();
  meet_again_and_again([&] { return in_memory; });
  const auto outer = make_hash_store();
  meet_again_and_again([&] { return make_prefix_store("corner", outer); });
  const ServedStore server;
  meet_again_and_again([&] { return server.client(); });
  const std::string path = testing::TempDir() + "store_collectives." + std::to_string(::getpid());
  {
    const auto kept = open_file_store({.path = path});
    meet_again_and_again([&] { return open_file_store({.path = path}); });
  }
  std::filesystem::remove(path);
}

TEST(StoreCollectivesTest, WhoHasNotComeIsNamedWithTheTimeAndTheErrorStays) {
  const ServedStore server;
  on_ranks([&] { return server.client(); },
           [](StoreCollectives& group, int rank) {
             group.barrier(late());
             if (rank == 1 || rank == 3) return;
             const bool gathers = rank == 0;
             const auto call = [&] {
               if (gathers) return static_cast<void>(group.all_gather("v", soon()));
               group.barrier(soon());
             };
             const auto error = error_of(call);
             ASSERT_TRUE(error);
             EXPECT_EQ(error->code(), ErrorCode::kTimeout);
             EXPECT_TRUE(contains(error->summary(), "'group' (its call 2): rank "))
                 << error->what();
             EXPECT_TRUE(contains(error->summary(), " has waited ")) << error->what();
             // Another call than the others': they are absent from this one.
             if (gathers) {
               EXPECT_EQ(error->why(), "rank 1, 2, 3, 4 of 5 have not come");
             } else {
               EXPECT_TRUE(contains(error->why(), "0, 1, ")) << error->what();
             }
             EXPECT_STREQ(error_of(call)->what(), error->what());
           });
}

TEST(StoreCollectivesTest, ManyAbsentRanksAreNotAllNamed) {
  StoreCollectives group(make_hash_store(), "group", 7, 1000);
  const auto error = error_of([&] { group.barrier(soon()); });
  ASSERT_TRUE(error);
  EXPECT_TRUE(contains(error->why(), "rank 0, 1, 2, 3, 4, 5, 6, 8, 9, ")) << error->what();
  EXPECT_TRUE(error->why().ends_with(" of 1000 and others have not come")) << error->what();
}

TEST(StoreCollectivesTest, AStoreThatEndsAndARankOutsideTheWorldAreErrors) {
  EXPECT_EQ(error_of([] { StoreCollectives(make_hash_store(), "g", 5, 5); })->code(),
            ErrorCode::kInvalidArgument);
  ServedStore server;
  StoreCollectives group(server.client(), "group", 0, 2);
  std::thread ending([&] {
    server.client()->wait({"group/0/barrier/0"}, late());
    server.stop();
  });
  const auto error = error_of([&] { group.barrier(late()); });
  ending.join();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kConnection);
}

}  // namespace
}  // namespace dtrun::rendezvous
