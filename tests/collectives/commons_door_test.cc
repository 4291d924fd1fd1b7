// A rank that has made the memory of its machine lets the others in, also when it has no descriptor
// left for those who knock.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cpu/commons_door.h"
#include "dtrun/rendezvous/hash_store.h"
#include "support/promptness.h"
#include "support/rank_threads.h"

namespace dtrun::collectives::cpu {
namespace {

using base::Deadline;
using base::UniqueFd;

/// Rank 1 of 2 as far as the door, in a process of its own: limits are a process's.
class Visitor {
 public:
  Visitor() : pid_(::fork()) {
    if (pid_ == 0) {
      plate_.write_end.reset();
      ::_exit(visit());
    }
    end_.write_end.reset();
  }
  ~Visitor() {
    if (!ended_) ::kill(pid_, SIGKILL);
    wait();
  }
  void knock(const std::string& key, const std::string& plate) {
    const std::string text = key + '\n' + plate;
    EXPECT_EQ(::write(plate_.write_end.get(), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
  }
  bool ends_within(int milliseconds) const {
    pollfd ended{end_.read_end.get(), POLLIN, 0};
    const int count = ::poll(&ended, 1, milliseconds);
    EXPECT_GE(count, 0);
    return count > 0;
  }
  /// 0: was let in.
  int wait() {
    if (ended_) return WEXITSTATUS(status_);
    EXPECT_EQ(::waitpid(pid_, &status_, 0), pid_);
    ended_ = true;
    return WEXITSTATUS(status_);
  }

 private:
  int visit() const {
    char buffer[1024];  // it comes in one piece
    const ssize_t count = ::read(plate_.read_end.get(), buffer, sizeof(buffer));
    if (count < 0) return 3;
    const std::string text(buffer, static_cast<std::size_t>(count));
    const std::size_t end = text.find('\n');
    const auto store = rendezvous::make_hash_store();
    store->set(text.substr(0, end), text.substr(end + 1));
    try {
      const CommonsDoor door({*store, 1, 1, 2, Deadline::after(testing_support::kPatience)},
                             CommonsDoor::Company::machine);
      return door.name().empty() ? 2 : 0;
    } catch (const base::Error&) {
      return 1;
    }
  }

  base::Pipe plate_ = base::make_pipe();
  base::Pipe end_ = base::make_pipe();
  pid_t pid_;
  int status_ = 0;
  bool ended_ = false;
};

class CommonsDoorTest : public testing::Test {
 protected:
  CommonsDoorTest() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rank0_ = std::thread([this] { ProcessGroup::create(test::group_options(store_, 0, 2)); });
    // Its card is put up last.
    store_->wait({"member/0"}, Deadline::after(testing_support::kPatience));
    const auto keys = store_->list_keys();
    key_ = *std::find_if(keys.begin(), keys.end(),
                         [](const std::string& key) { return key.starts_with("commons/"); });
    plate_ = store_->get(key_);
  }
  ~CommonsDoorTest() override {
    limit(before_.rlim_cur);
    visitor_.wait();
    ProcessGroup::create(test::group_options(store_, 1, 2));
    rank0_.join();
  }
  void limit(rlim_t descriptors) const {
    rlimit limit = before_;
    limit.rlim_cur = descriptors;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }

  Visitor visitor_;
  rlimit before_{};
  const std::shared_ptr<rendezvous::Store> store_ = rendezvous::make_hash_store();
  std::thread rank0_;
  std::string key_;
  std::string plate_;
};

TEST_F(CommonsDoorTest, ARankWithoutADescriptorLeftLetsTheOthersIn) {
  limit(256);
  std::vector<UniqueFd> taken;
  do taken.emplace_back(::fcntl(0, F_DUPFD_CLOEXEC, 0));
  while (taken.back());
  EXPECT_EQ(errno, EMFILE);
  visitor_.knock(key_, plate_);
  EXPECT_EQ(visitor_.wait(), 0);
}

TEST_F(CommonsDoorTest, WhereNotEvenTheSpareDescriptorCanBeHadTheyWaitWithoutHaste) {
  limit(1);  // poll needs one
  const std::clock_t begin = std::clock();
  visitor_.knock(key_, plate_);
  EXPECT_FALSE(visitor_.ends_within(300));
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 10);
  limit(before_.rlim_cur);
  EXPECT_EQ(visitor_.wait(), 0);
}

}  // namespace
}  // namespace dtrun::collectives::cpu
