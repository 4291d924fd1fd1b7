// How a rank hears of the death of another on its machine, however many it asks for.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cpu/lifelines.h"
#include "support/promptness.h"

namespace dtrun::collectives::cpu {
namespace {

using Found = Lifelines::Found;

/// A rank that lives until it is killed.
class LivingRank {
 public:
  enum class Child { none, keeps_the_sign };
  LivingRank(const Commons& commons, int rank, Child child = Child::none) : pid_(::fork()) {
    if (pid_ == 0) {
      ended_.read_end.reset();
      const std::optional<LifeSign> sign = LifeSign::give(commons, rank);
      if (child == Child::keeps_the_sign && ::fork() == 0) {
        // Until the test has heard what it waits for, and closes its end.
        static_cast<void>(::write(ready_.write_end.get(), "r", 1));
        pollfd closed{ended_.write_end.get(), 0, 0};
        ::poll(&closed, 1, -1);
        ::_exit(0);
      }
      if (child == Child::none) static_cast<void>(::write(ready_.write_end.get(), "r", 1));
      for (;;) ::pause();
    }
    ended_.write_end.reset();
    char ready = 0;
    EXPECT_EQ(::read(ready_.read_end.get(), &ready, 1), 1);
  }
  ~LivingRank() {
    if (pid_ > 0) kill();
  }
  LivingRank(const LivingRank&) = delete;
  LivingRank& operator=(const LivingRank&) = delete;

  void kill() {
    EXPECT_EQ(::kill(pid_, SIGKILL), 0);
    EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
    pid_ = -1;
  }

 private:
  base::Pipe ready_ = base::make_pipe();
  base::Pipe ended_ = base::make_pipe();
  pid_t pid_;
};

bool becomes_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  const std::chrono::milliseconds patience = testing_support::kPatience;
  return ::poll(&entry, 1, static_cast<int>(patience.count())) == 1;
}

// More often than a socket's queue of connections is long.
TEST(LifelinesTest, ADeathIsToldHoweverOftenEachOfManyWasAskedFor) {
  constexpr int kRanks = Lifelines::kMost + 2;
  constexpr int kTurns = 5000;
  const Commons commons = Commons::create(kRanks);
  std::vector<std::unique_ptr<LivingRank>> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.push_back(std::make_unique<LivingRank>(commons, rank));
  Lifelines lifelines;
  std::map<int, int> watched;
  const auto watch = [&](int fd, int rank) {
    watched[rank] = fd;
    return true;
  };
  for (int turn = 0; turn < kTurns; ++turn)
    for (int rank = 0; rank < kRanks; ++rank)
      ASSERT_EQ(lifelines.look(commons, rank, watch), Found::alive);
  ranks[kRanks - 1]->kill();
  EXPECT_TRUE(becomes_readable(watched[kRanks - 1]));
  ranks[0]->kill();
  EXPECT_EQ(lifelines.look(commons, 0, watch), Found::dead);
  EXPECT_EQ(lifelines.look(commons, 1, watch), Found::alive);
}

TEST(LifelinesTest, ARankThatCannotBeWatchedIsLookedAtAgain) {
  const Commons commons = Commons::create(1);
  LivingRank rank(commons, 0);
  Lifelines lifelines;
  int asked = 0;
  const auto watch = [&](int, int) {
    ++asked;
    return false;
  };
  EXPECT_EQ(lifelines.look(commons, 0, watch), Found::alive);
  EXPECT_EQ(lifelines.look(commons, 0, watch), Found::alive);
  EXPECT_EQ(asked, 2);
  rank.kill();
  EXPECT_EQ(lifelines.look(commons, 0, watch), Found::dead);
}

TEST(LifelinesTest, TheChildOfADeadRankDoesNotHideItsDeath) {
  const Commons commons = Commons::create(1);
  LivingRank rank(commons, 0, LivingRank::Child::keeps_the_sign);
  Lifelines lifelines;
  int watched = -1;
  const auto watch = [&](int fd, int) {
    watched = fd;
    return true;
  };
  EXPECT_EQ(lifelines.look(commons, 0, watch), Found::alive);
  rank.kill();
  EXPECT_TRUE(LifeSign::is_seen(commons, 0));
  EXPECT_TRUE(becomes_readable(watched));
}

TEST(LifelinesTest, AWorldThatEndsInALivingProcessIsDead) {
  const Commons commons = Commons::create(2);
  std::optional<LifeSign> sign = LifeSign::give(commons, 1);
  EXPECT_TRUE(sign.has_value());
  EXPECT_FALSE(LifeSign::give(commons, 1).has_value());
  EXPECT_TRUE(LifeSign::is_seen(commons, 1));
  EXPECT_FALSE(LifeSign::is_seen(commons, 0));
  sign.reset();
  EXPECT_FALSE(LifeSign::is_seen(commons, 1));
}

}  // namespace
}  // namespace dtrun::collectives::cpu
