#include "ranks/guard_link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

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

TEST(GuardLink, SendingToNobodyReturns) {
  GuardLink::Ends ends = GuardLink::make();
  ends.agent.close();
  ends.guard.send(MessageKind::kRankEnd, RankEnd{});
  EXPECT_FALSE(ends.guard.receive());
}

}  // namespace
}  // namespace dtrun::launcher
