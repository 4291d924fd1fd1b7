// Collectives of objects: any sizes, empty ones, groups, types, and what is refused.
#include "dtrun/runtime/dist_objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "dtrun/runtime/dist_json.h"
#include "runtime/dist_ranks.h"
#include "support/thrown_error.h"

namespace dtrun::dist {
namespace {

using base::ErrorCode;
using testing::HasSubstr;
using testing_support::error_of;
using Texts = std::vector<std::string>;

/// Of another size on each rank; none on rank 0.
std::string text_of(int rank) {
  return std::string(static_cast<std::size_t>(rank) * 1000, static_cast<char>('a' + rank));
}

TEST(DistObjectsTest, TextsOfAnySizeReachTheRanksThatTheyAreFor) {
  for (const int ranks : {1, 2, 3, 5}) {
    run_dist_ranks(ranks, [&](int rank) {
      Texts expected;
      for (int r = 0; r < ranks; ++r) expected.push_back(text_of(r));
      Texts found;
      all_gather_object(found, text_of(rank));
      EXPECT_EQ(found, expected);
      for (int root = 0; root < ranks; ++root) {
        gather_object(text_of(rank), found, root);
        EXPECT_EQ(found, rank == root ? expected : Texts());
        EXPECT_EQ(scatter_object_list(rank == root ? expected : Texts(), root), text_of(rank));
        Texts list{text_of(rank), "", "rank " + std::to_string(rank)};
        broadcast_object_list(list, root);
        EXPECT_EQ(list, (Texts{text_of(root), "", "rank " + std::to_string(root)}));
      }
      // Nothing at all, and nothing in the list.
      all_gather_object(found, std::string());
      EXPECT_EQ(found, Texts(static_cast<std::size_t>(ranks)));
      gather_object(std::string(), found, 0);
      EXPECT_EQ(found, rank == 0 ? Texts(static_cast<std::size_t>(ranks)) : Texts());
      EXPECT_EQ(scatter_object_list(Texts(static_cast<std::size_t>(ranks)), 0), "");
      Texts none;
      broadcast_object_list(none, 0);
      EXPECT_TRUE(none.empty());
    });
  }
}

struct Point {
  int x;
  double y;
  friend bool operator==(const Point&, const Point&) = default;
};

TEST(DistObjectsTest, PlainValuesAndJsonTravelToo) {
  run_dist_ranks(3, [](int rank) {
    std::vector<Point> points;
    all_gather_object(points, Point{rank, 0.5 * rank});
    EXPECT_EQ(points, (std::vector<Point>{{0, 0}, {1, 0.5}, {2, 1}}));
    const boost::json::value mine = {{"rank", rank}, {"hosts", {"a", nullptr}}};
    std::vector<boost::json::value> values;
    all_gather_object(values, mine);
    ASSERT_EQ(values.size(), 3U);
    EXPECT_EQ(boost::json::serialize(values[2]), R"({"rank":2,"hosts":["a",null]})");
  });
}

TEST(DistObjectsTest, AGroupsRootIsAGlobalRank) {
  run_dist_ranks(4, [](int rank) {
    const ProcessGroup odd = new_group({1, 3});
    if (rank % 2 == 0) return;
    Texts list{text_of(rank)};
    broadcast_object_list(list, 3, {.group = odd});
    EXPECT_EQ(list, Texts{text_of(3)});
    gather_object(text_of(rank), list, 3, {.group = odd});
    EXPECT_EQ(list, rank == 3 ? (Texts{text_of(1), text_of(3)}) : Texts());
    EXPECT_EQ(scatter_object_list(Texts{"one", "three"}, 1, {.group = odd}),
              rank == 1 ? "one" : "three");
  });
}

TEST(DistObjectsTest, MessagesHoldListsOfObjects) {
  run_dist_ranks(3, [](int rank) {
    if (rank > 0) {
      send_object_list(Texts{text_of(rank), ""}, 0, {.tag = static_cast<std::uint32_t>(rank)});
      return;
    }
    for (const int from : {2, 1}) {
      Texts list(2);
      EXPECT_EQ(recv_object_list(list, -1, {.tag = static_cast<std::uint32_t>(from)}), from);
      EXPECT_EQ(list, (Texts{text_of(from), ""}));
    }
  });
}

TEST(DistObjectsTest, ValuesOfAnotherTypeAndWrongListsAreToldOnAllRanks) {
  run_dist_ranks(2, [](int rank) {
    // Rank 1 takes what rank 0 sends for another type.
    std::vector<std::int32_t> small{7};
    std::vector<Point> points{{1, 2}};
    const auto broadcast_both = [&] {
      if (rank == 0) {
        broadcast_object_list(small, 0);
      } else {
        broadcast_object_list(points, 0);
      }
    };
    const auto error = error_of(broadcast_both);
    EXPECT_EQ(error.has_value(), rank == 1);
    if (error) {
      EXPECT_THAT(error->what(), HasSubstr("an object of 4 bytes where 16 were due"));
    }
    std::vector<boost::json::value> values{nullptr};
    const auto no_json = error_of([&] {
      if (rank == 0) {
        Texts text{"{"};
        broadcast_object_list(text, 0);
      } else {
        broadcast_object_list(values, 0);
      }
    });
    EXPECT_EQ(no_json.has_value(), rank == 1);
    if (no_json) {
      EXPECT_EQ(no_json->code(), ErrorCode::kProtocol);
    }
    const auto few = error_of([&] { scatter_object_list(Texts{"one"}, 0); });
    ASSERT_TRUE(few.has_value());
    EXPECT_THAT(few->what(), HasSubstr("rank 0 has not one object for each of 2 ranks"));
  });
}

}  // namespace
}  // namespace dtrun::dist
