// batch_isend_irecv over the nccl backend: one group of NCCL's calls, on one communicator.
#include <gtest/gtest.h>

#include "collectives/nccl_job.h"
#include "support/promptness.h"

namespace dtrun::test {
namespace {

using collectives::Message;
using testing_support::kPatience;

Message message_of(OpKind kind, Values& values, int peer, std::uint64_t sequence) {
  Message message{kind, buffer_of(values), peer, 0, async_call(kind, sequence)};
  message.call.fingerprint.root = peer;
  return message;
}

void wait_for(const std::vector<Work>& works) {
  for (const Work& work : works) work.wait(Deadline::after(kPatience));
}

/// Each rank sends to all others and receives from them, receives first.
void exchange_with_all(Backend& backend, std::size_t count) {
  const int me = backend.rank();
  const auto size = static_cast<std::size_t>(backend.size());
  std::vector<Values> sent(size), received(size);
  std::vector<Message> messages;
  for (int peer = 0; peer < backend.size(); ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    if (peer == me) continue;
    sent[at].assign(count, 10 * me + peer);
    received[at].assign(count, -1);
    messages.push_back(message_of(OpKind::receive, received[at], peer, at + 1));
    messages.push_back(message_of(OpKind::send, sent[at], peer, size + at + 1));
  }
  wait_for(backend.exchange(std::move(messages)));
  for (int peer = 0; peer < backend.size(); ++peer) {
    if (peer == me) continue;
    EXPECT_EQ(received[static_cast<std::size_t>(peer)], Values(count, 10 * peer + me));
  }
}

TEST(NcclBatchTest, IsOneGroupOfCallsOnTheGroupsCommunicator) {
  for (const int size : {2, 4}) {
    NcclJob job(size);
    job.run_well([&](Backend& backend) {
      test::barrier(backend, call_of(OpKind::barrier, 1));
      for (const std::size_t count : {1UL, 1000UL, 0UL}) exchange_with_all(backend, count);
    });
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(job.simulation.count(rank, "init_rank"), 1);
      EXPECT_EQ(job.simulation.count(rank, "send"), 2 * (size - 1));
      // Empty messages need none.
      EXPECT_EQ(job.simulation.count(rank, "group_end"), 2);
    }
  }
}

// Whose peers do not take part: three ranks of four, in a ring, while the fourth does nothing.
TEST(NcclBatchTest, MayLeaveRanksOut) {
  for (const bool has_communicator : {true, false}) {
    NcclJob job(4);
    job.run_well([&](Backend& backend) {
      if (has_communicator) test::barrier(backend, call_of(OpKind::barrier, 1));
      const int me = backend.rank();
      if (me == 3) return;
      Values sent = {me}, received = {-1};
      std::vector<Message> messages;
      messages.push_back(message_of(OpKind::send, sent, (me + 1) % 3, 1));
      messages.push_back(message_of(OpKind::receive, received, (me + 2) % 3, 2));
      wait_for(backend.exchange(std::move(messages)));
      EXPECT_EQ(received, Values{(me + 2) % 3});
    });
  }
}

TEST(NcclBatchTest, SeveralMessagesToOnePeerKeepTheirOrder) {
  NcclJob job(2);
  job.run_well([&](Backend& backend) {
    test::barrier(backend, call_of(OpKind::barrier, 1));
    const bool sends = backend.rank() == 0;
    std::vector<Values> all = {{sends ? 1 : 0}, {sends ? 2 : 0}, {sends ? 3 : 0}};
    std::vector<Message> messages;
    for (Values& values : all)
      messages.push_back(message_of(sends ? OpKind::send : OpKind::receive, values,
                                    1 - backend.rank(), messages.size() + 1));
    wait_for(backend.exchange(std::move(messages)));
    EXPECT_EQ(all, (std::vector<Values>{{1}, {2}, {3}}));
  });
}

TEST(NcclBatchTest, MessagesOfTwoDevicesAreTwoGroupsOfCalls) {
  NcclJob job(2, {.devices = 2});
  job.run_well([&](Backend& backend) {
    const bool sends = backend.rank() == 0;
    Values one = {1};
    for (const int device : {0, 1}) {
      Buffer buffer = buffer_of(one);
      buffer.device_index = device;
      test::all_reduce(backend, buffer, buffer, ReduceOp::sum,
                       call_of(OpKind::all_reduce, static_cast<std::uint64_t>(device) + 1));
    }
    Values first = {sends ? 5 : 0}, second = {sends ? 6 : 0};
    std::vector<Message> messages;
    const OpKind kind = sends ? OpKind::send : OpKind::receive;
    messages.push_back(message_of(kind, first, 1 - backend.rank(), 1));
    messages.push_back(message_of(kind, second, 1 - backend.rank(), 2));
    messages.back().buffer.device_index = 1;
    wait_for(backend.exchange(std::move(messages)));
    EXPECT_EQ(first, Values{5});
    EXPECT_EQ(second, Values{6});
  });
  EXPECT_EQ(job.simulation.count(0, "init_rank"), 2);
  EXPECT_EQ(job.simulation.count(0, "group_end"), 2);
}

TEST(NcclBatchTest, NothingOfABatchBeginsWhereNcclCannotDoOneMessage) {
  NcclJob job(2);
  job.run_well([&](Backend& backend) {
    test::barrier(backend, call_of(OpKind::barrier, 1));
    Values values = {1}, other = {2};
    std::vector<Message> messages;
    messages.push_back(message_of(OpKind::send, values, 1 - backend.rank(), 1));
    messages.push_back(message_of(OpKind::receive, other, -1, 2));
    const std::optional<Error> error = error_of([&] { backend.exchange(std::move(messages)); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
  });
  EXPECT_EQ(job.simulation.count(0, "send"), 0);
}

TEST(NcclBatchTest, AMemberThatDoesNotComeFailsAllOfIt) {
  NcclJob job(2);
  const auto thrown = job.run([&](Backend& backend) {
    test::barrier(backend, call_of(OpKind::barrier, 1));
    if (backend.rank() == 1) return;
    Values sent = {1}, received = {0};
    std::vector<Message> messages;
    messages.push_back(message_of(OpKind::send, sent, 1, 1));
    messages.push_back(message_of(OpKind::receive, received, 1, 2));
    for (Message& message : messages)
      message.call.deadline = Deadline::after(std::chrono::milliseconds(300));
    const std::vector<Work> works = backend.exchange(std::move(messages));
    for (const Work& work : works) {
      const std::optional<Error> error = error_of([&] { work.wait(Deadline::after(kPatience)); });
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::kTimeout);
    }
  });
  for (const auto& error : thrown) EXPECT_FALSE(error) << error->what();
  for (const std::string& violation : job.simulation.violations()) ADD_FAILURE() << violation;
}

}  // namespace
}  // namespace dtrun::test
