// Joining a group: who is missing is named, and ranks that contradict each other all fail.
#include "membership.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <thread>

#include "cpu/commons_door.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/hash_store.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::Error;
using base::ErrorCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::group_options;
using testing_support::contains;
using testing_support::error_of;

TEST(MembershipTest, WhoIsMissingIsNamed) {
  const auto store = rendezvous::make_hash_store();
  const std::optional<Error> error = error_of(
      [&] { ProcessGroup::create(group_options(store, 1, 4, {.timeout = milliseconds(50)})); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kTimeout);
  EXPECT_TRUE(contains(error->what(), "missing ranks 0, 2, 3")) << error->what();
  EXPECT_TRUE(contains(error->what(), "group 'world' of 4 ranks")) << error->what();
}

TEST(MembershipTest, RanksThatDisagreeAboutTheSizeAllFailAndNameBoth) {
  // Whoever comes first, and also those who wait for ranks that one side does not know of.
  for (const bool odd_first : {true, false}) {
    const auto store = rendezvous::make_hash_store();
    const auto join = [&store](int rank, int size) {
      return error_of([&] { ProcessGroup::create(group_options(store, rank, size)); });
    };
    std::vector<std::optional<Error>> errors(3);
    std::vector<std::thread> threads;
    const auto start = [&](std::size_t rank) {
      threads.emplace_back(
          [&, rank] { errors[rank] = join(static_cast<int>(rank), rank == 1 ? 5 : 4); });
    };
    for (const std::size_t rank :
         odd_first ? std::vector<std::size_t>{1, 0, 2} : std::vector<std::size_t>{0, 2, 1})
      start(rank);
    for (std::thread& thread : threads) thread.join();
    for (const std::optional<Error>& error : errors) {
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), ErrorCode::kDisagreement);
      EXPECT_TRUE(contains(error->what(), "rank 1 says 5")) << error->what();
      EXPECT_TRUE(contains(error->what(), " says 4")) << error->what();
    }
  }
}

TEST(MembershipTest, TwoProcessesCannotBeOneRank) {
  const auto store = rendezvous::make_hash_store();
  std::thread first([&] {
    const auto error = error_of(
        [&] { ProcessGroup::create(group_options(store, 0, 2, {.timeout = seconds(1)})); });
    EXPECT_TRUE(error.has_value());
  });
  store->get("member/0", base::Deadline::never());
  const std::optional<Error> second =
      error_of([&] { ProcessGroup::create(group_options(store, 0, 2)); });
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->code(), ErrorCode::kDisagreement);
  EXPECT_TRUE(contains(second->what(), "two processes are rank 0 of group 'world'"))
      << second->what();
  first.join();
}

TEST(MembershipTest, ARankThatStopsHalfwayIsNamed) {
  const auto store = rendezvous::make_hash_store();
  std::optional<Error> error;
  std::thread second([&] {
    error = error_of(
        [&] { ProcessGroup::create(group_options(store, 1, 2, {.timeout = seconds(1)})); });
  });
  // Rank 0 puts up a card, and does no more.
  std::string card = store->get("member/1", base::Deadline::never());
  store->set("member/0", card.replace(card.find("\n1\n"), 3, "\n0\n"));
  second.join();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kTimeout);
  EXPECT_TRUE(contains(error->what(), "rank 0 (pid ")) << error->what();
  EXPECT_TRUE(contains(error->what(), "came, but stopped or ended")) << error->what();
}

TEST(MembershipTest, TheOneWhoHasTheCommonsMayStopOrDie) {
  for (const bool dies : {false, true}) {
    const auto store = rendezvous::make_hash_store();
    std::optional<Error> error;
    const base::UniqueFd door(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = "dtrun-test-" + std::to_string(::getpid());
    std::copy(name.begin(), name.end(), address.sun_path + 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    ASSERT_EQ(::bind(door.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
    ASSERT_EQ(::listen(door.get(), 4), 0);
    store->set("commons/" + cpu::locality_here() + "/" + std::to_string(::geteuid()) + "/2",
               name + "\nrank 7 (pid 12 on n0)");
    std::thread visitor([&] {
      error = error_of(
          [&] { ProcessGroup::create(group_options(store, 1, 2, {.timeout = seconds(1)})); });
    });
    if (dies) base::UniqueFd(::accept(door.get(), nullptr, nullptr)).reset();
    visitor.join();
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), dies ? ErrorCode::kPeerFailed : ErrorCode::kTimeout);
    EXPECT_TRUE(contains(error->what(), "rank 7 (pid 12 on n0)")) << error->what();
  }
}

TEST(MembershipTest, StrangersAtTheDoorAreSentAway) {
  const auto store = rendezvous::make_hash_store();
  const auto options = [&](int rank) {
    return group_options(store, rank, 2, {.transport = Transport::tcp});
  };
  std::thread peer([&] {
    const ProcessGroup group = ProcessGroup::create(options(1));
    group.barrier();
    group.barrier();
  });
  const ProcessGroup group = ProcessGroup::create(options(0));
  group.barrier();
  // The last lines of a card are address, port and token.
  std::istringstream card(store->get("member/1", base::Deadline::never()));
  std::vector<std::string> lines;
  for (std::string line; std::getline(card, line);) lines.push_back(line);
  const auto port = static_cast<std::uint16_t>(std::stoi(lines[lines.size() - 2]));
  const std::string noise(200, '!');
  for (int i = 0; i < 3; ++i) {
    const base::Deadline deadline = base::Deadline::after(seconds(10));
    const base::UniqueFd stranger = base::connect_tcp(lines[lines.size() - 3], port, deadline);
    base::send_all(stranger.get(), noise.data(), noise.size(), deadline);
    // It is closed by the other side.
    char byte;
    EXPECT_THROW(base::receive_all(stranger.get(), &byte, 1, deadline), Error);
  }
  group.barrier();
  peer.join();
}

TEST(MembershipTest, AForeignCardIsRefused) {
  const auto store = rendezvous::make_hash_store();
  store->set("member/1", "something else\n");
  const std::optional<Error> error =
      error_of([&] { ProcessGroup::create(group_options(store, 0, 2)); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kProtocol);
  EXPECT_TRUE(contains(error->what(), "the card of rank 1 cannot be read")) << error->what();
}

TEST(CreateTest, WrongOptionsAreRefused) {
  auto options = group_options(rendezvous::make_hash_store(), 0, 1);
  options.timeout = milliseconds(0);
  std::optional<Error> error = error_of([&] { ProcessGroup::create(options); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(contains(error->what(), "the timeout of group 'world' is 0")) << error->what();
  options.store = nullptr;
  error = error_of([&] { ProcessGroup::create(options); });
  ASSERT_TRUE(error.has_value());
  EXPECT_TRUE(contains(error->what(), "a group needs a store"));
  EXPECT_TRUE(error_of([] { ProcessGroup().rank(); }).has_value());
}

}  // namespace
}  // namespace dtrun::collectives
