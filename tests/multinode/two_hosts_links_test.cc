// Links between two hosts that are slow, lossy or cut, and links of which one is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "multinode/two_hosts.h"

namespace dtrun {
namespace {

using testing::HasSubstr;

/// Of hosts-shape, for the second host's link.
struct LinkShape {
  const char* name;
  const char* delay_ms;
  const char* rate_mbit;
  const char* loss_percent = "0";
  bool is_cut = false;
};

class LinkShapesTest : public TwoHostsTest, public testing::WithParamInterface<LinkShape> {
 protected:
  void cut_and_heal() const {
    for (const std::vector<std::string>& cut : std::vector<std::vector<std::string>>{
             {"hosts-cut", "--silent", "2"}, {"hosts-cut", "2"}, {"hosts-cut", "--silent", "2"}}) {
      in_lab(cut);
      await_silence();
      in_lab({"hosts-heal", "2"});
    }
  }

  /// What a queue before the cut still holds comes through.
  void await_silence() const {
    std::int64_t before = -1, received = 0;
    for (int looks = 0; looks < 200 && received != before; ++looks) {
      before = received;
      received = bytes_received("eth0");
    }
    EXPECT_EQ(received, before) << "the link is not cut";
  }

  /// The number behind those words at the beginning of a line of the rank's; nullopt: no such line.
  static std::optional<std::int64_t> number_behind(Command& command, const std::string& words) {
    const std::optional<std::string> line = command.next_line(words);
    return line ? std::optional(std::stoll(line->substr(words.size()))) : std::nullopt;
  }
  static std::int64_t now_ns() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  /// Cuts the link, on which a sum takes seconds, while every rank is in that sum.
  void cut_and_heal_within_a_sum(Command& first, Command& second) const {
    std::vector<std::int64_t> begins;
    for (Command* const command : {&first, &second})
      for (int rank = 0; rank < 2; ++rank)
        begins.push_back(number_behind(*command, "long sum from ").value_or(0));
    const std::int64_t cut = now_ns();
    cut_and_heal();
    const std::int64_t healed = now_ns();
    for (const std::int64_t begin : begins) {
      EXPECT_GT(begin, 0);
      EXPECT_LT(begin, cut);
    }
    for (Command* const command : {&first, &second}) {
      for (int rank = 0; rank < 2; ++rank) {
        const std::optional<std::string> line = command->next_line("long sum until ");
        ASSERT_TRUE(line);
        EXPECT_THAT(*line, HasSubstr(", right"));
        EXPECT_GT(std::stoll(line->substr(sizeof("long sum until ") - 1)), healed)
            << "the sum was over before the link was healed for the last time";
      }
    }
  }
};

// Every operation of a group, in four ranks of which two share memory. Calls time out after a
// minute, and none may.
TEST_P(LinkShapesTest, EveryOperationIsThatOfTheReference) {
  const LinkShape& shape = GetParam();
  in_lab({"hosts-shape", "2", shape.delay_ms, shape.rate_mbit, shape.loss_percent});
  std::vector<std::string> line = {"--rdzv_conf", "keep_alive_interval=100",
                                   DTRUN_BIN "/conforming_rank"};
  if (shape.is_cut) line.emplace_back("--long-sum");
  line.emplace_back("--gtest_color=no");
  const std::int64_t received_before = bytes_received("eth0");
  const auto first = start(1, line), second = start(2, line);
  const std::optional<std::int64_t> round_trip = number_behind(*first, "round trip ");
  ASSERT_TRUE(round_trip) << second->finish().describe();
  if (shape.is_cut) cut_and_heal_within_a_sum(*first, *second);
  ASSERT_TRUE(first->wait_for_output("[ RUN      ] ConformingRank.Reductions"))
      << second->finish().describe();
  if (shape.is_cut) cut_and_heal();
  const CommandResult results[] = {first->finish(), second->finish()};
  // The shape was there: what the ranks saw of the delay, which is that of each way, and of the
  // rate.
  EXPECT_GE(static_cast<double>(*round_trip), 2e6 * std::stod(shape.delay_ms));
  if (const double rate = std::stod(shape.rate_mbit) * 1e6 / 8; rate > 0) {
    const auto received = static_cast<double>(bytes_received("eth0") - received_before);
    EXPECT_GT(results[1].elapsed.count(), 0.9 * received / rate);
  }
  for (const CommandResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    const std::size_t one = result.out.find("[  PASSED  ] 4 tests.");
    ASSERT_NE(one, std::string::npos) << result.describe();
    EXPECT_NE(result.out.find("[  PASSED  ] 4 tests.", one + 1), std::string::npos)
        << result.describe();
  }
}
INSTANTIATE_TEST_SUITE_P(Links, LinkShapesTest,
                         testing::Values(LinkShape{"Delayed", "10", "0"},
                                         LinkShape{"Narrowed", "0", "100"},
                                         LinkShape{"DelayedNarrowedAndLossy", "3", "300", "0.5"},
                                         LinkShape{"CutAndHealed", "0", "100", "0", true}),
                         [](const auto& link) { return std::string(link.param.name); });

/// How its name comes to the ranks.
struct Naming {
  const char* name;
  const char* option = nullptr;    ///< of dtrun
  const char* variable = nullptr;  ///< of the environment
  bool is_second = true;           ///< eth1 it is, and not the one that leads to the master
};

class NamedInterfaceTest : public TwoHostsTest, public testing::WithParamInterface<Naming> {};

TEST_P(NamedInterfaceTest, TensorsGoByItAndByNoOther) {
  constexpr std::int64_t kSum = 1 << 20;  // bytes that the program adds up over the ranks
  in_lab({"hosts-rail"});
  std::vector<std::string> line = {DTRUN_BIN "/transports"};
  if (GetParam().option != nullptr) line.insert(line.begin(), GetParam().option);
  if (GetParam().variable != nullptr) options_.environment[GetParam().variable] = "eth1";
  const std::string used = GetParam().is_second ? "eth1" : "eth0";
  const std::string other = GetParam().is_second ? "eth0" : "eth1";
  const std::int64_t used_before = bytes_received(used), other_before = bytes_received(other);
  const auto first = start(1, line), second = start(2, line);
  for (const CommandResult& result : {first->finish(), second->finish()}) {
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_THAT(result.out, HasSubstr("sum right")) << result.describe();
  }
  EXPECT_GE(bytes_received(used) - used_before, kSum);
  EXPECT_LT(bytes_received(other) - other_before, kSum / 4);
}
INSTANTIATE_TEST_SUITE_P(Names, NamedInterfaceTest,
                         testing::Values(Naming{"Option", "--iface=eth1"},
                                         Naming{"Variable", nullptr, "DTRUN_SOCKET_IFNAME"},
                                         Naming{"GloosVariable", nullptr, "GLOO_SOCKET_IFNAME"},
                                         Naming{"None", nullptr, nullptr, false}),
                         [](const auto& naming) { return std::string(naming.param.name); });

}  // namespace
}  // namespace dtrun
