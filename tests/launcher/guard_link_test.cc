#include "ranks/guard_link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <thread>

namespace dtrun::launcher {
namespace {

TEST(GuardLink, NothingIsLostWhenTheOtherSideReadsLater) {
  constexpr int kMessages = 2000;
  GuardLink::Ends ends = GuardLink::make();
  // As the event loop makes them.
  for (const int fd : {ends.agent.fd(), ends.guard.fd()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  std::jthread guard([&] {
    const std::string tail(1000, 'x');
    for (int i = 0; i < kMessages; ++i) {
      RankEnd end;
      end.local_rank = i;
      ends.guard.send(MessageKind::kRankEnd, end, tail);
    }
  });
  for (int i = 0; i < kMessages; ++i) {
    pollfd message{ends.agent.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&message, 1, 60'000), 1) << "after " << i << " messages";
    const auto received = ends.agent.receive();
    ASSERT_TRUE(received);
    ASSERT_EQ(received->as<RankEnd>().local_rank, i);
    ASSERT_EQ(received->text_after<RankEnd>().size(), 1000u);
  }
}

TEST(GuardLink, AFileComesWithItsMessageAndNoOther) {
  GuardLink::Ends ends = GuardLink::make();
  const base::UniqueFd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ends.guard.send_with_file(MessageKind::kSpawned, Spawned{.first = 7}, file.get());
  ends.guard.send(MessageKind::kRankEnd, RankEnd{});
  const auto with = ends.agent.receive(), without = ends.agent.receive();
  ASSERT_TRUE(with && without);
  EXPECT_EQ(with->as<Spawned>().first, 7);
  struct stat sent {
  }, got{};
  ASSERT_EQ(::fstat(file.get(), &sent), 0);
  ASSERT_EQ(::fstat(with->file.get(), &got), 0);
  EXPECT_EQ(got.st_rdev, sent.st_rdev);
  EXPECT_EQ(::fcntl(with->file.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_FALSE(without->file);
}

TEST(GuardLink, SendingToNobodyReturns) {
  GuardLink::Ends ends = GuardLink::make();
  ends.agent.close();
  ends.guard.send(MessageKind::kRankEnd, RankEnd{});
  EXPECT_FALSE(ends.guard.receive());
}

}  // namespace
}  // namespace dtrun::launcher
