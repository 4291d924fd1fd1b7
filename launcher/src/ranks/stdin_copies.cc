#include "ranks/stdin_copies.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dtrun/base/detached_thread.h"
#include "dtrun/base/error.h"
#include "output/output.h"

namespace dtrun::launcher {
namespace {

constexpr std::size_t kPieceBytes = 64 << 10;
constexpr int kTerminalPatience = 100;  // milliseconds

}  // namespace

struct StdinCopies::Shared {
  base::UniqueFd wake;  // an eventfd: something below has changed
  std::function<bool()> may_read;
  std::mutex mutex;
  std::optional<std::vector<base::UniqueFd>> next_round;  // our ends of its pipes
  bool is_over = false;
};

/// The thread's.
class StdinCopies::Pump {
 public:
  explicit Pump(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  void run() {
    while (take_news()) {
      forget_closed();
      if (is_at_end_) ranks_.clear();
      wait();
    }
  }

 private:
  struct Rank {
    base::UniqueFd pipe;
    std::size_t given = 0;  ///< of the piece
  };

  /// False: the guard has gone.
  bool take_news() {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->next_round) {
      ranks_.clear();
      // What was read for other ranks is not for these.
      piece_.clear();
      for (base::UniqueFd& pipe : *shared_->next_round) ranks_.push_back({std::move(pipe)});
      shared_->next_round.reset();
    }
    return !shared_->is_over;
  }

  void forget_closed() {
    std::erase_if(ranks_, [](const Rank& rank) { return !rank.pipe; });
  }

  bool is_whole() const {
    return std::ranges::all_of(ranks_,
                               [&](const Rank& rank) { return rank.given == piece_.size(); });
  }

  // For news, for ranks that take or close, and, once all have everything, for more.
  void wait() {
    const bool wants_more = is_whole() && !ranks_.empty();
    const bool may_read = !wants_more || !is_terminal_ || shared_->may_read();
    std::vector<pollfd> words = {{shared_->wake.get(), POLLIN, 0},
                                 {wants_more && may_read ? STDIN_FILENO : -1, POLLIN, 0}};
    for (const Rank& rank : ranks_) {
      const short wish = rank.given < piece_.size() ? POLLOUT : 0;
      words.push_back({rank.pipe.get(), wish, 0});
    }
    // Nothing tells when the terminal is this job's again.
    const int patience = is_terminal_ && wants_more ? kTerminalPatience : -1;
    if (::poll(words.data(), words.size(), patience) < 0) return;
    if (std::uint64_t count = 0; words[0].revents != 0) [[maybe_unused]]
      const ssize_t n = ::read(shared_->wake.get(), &count, sizeof count);
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const short events = words[2 + i].revents;
      if ((events & POLLERR) != 0)
        ranks_[i].pipe.reset();  // the rank has closed its end
      else if ((events & POLLOUT) != 0)
        give(ranks_[i]);
    }
    if (words[1].revents != 0 && (!is_terminal_ || shared_->may_read())) read_piece();
  }

  void give(Rank& rank) {
    const std::string_view rest = std::string_view(piece_).substr(rank.given);
    const ssize_t n = ::write(rank.pipe.get(), rest.data(), rest.size());
    if (n > 0) rank.given += static_cast<std::size_t>(n);
    if (n < 0 && errno != EAGAIN && errno != EINTR) rank.pipe.reset();
  }

  void read_piece() {
    piece_.resize(kPieceBytes);
    const ssize_t n = ::read(STDIN_FILENO, piece_.data(), piece_.size());
    const bool again = n < 0 && (errno == EINTR || errno == EAGAIN);
    piece_.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    is_at_end_ = n <= 0 && !again;
    for (Rank& rank : ranks_) rank.given = 0;
  }

  std::shared_ptr<Shared> shared_;
  std::vector<Rank> ranks_;
  std::string piece_;
  const bool is_terminal_ = ::isatty(STDIN_FILENO) == 1;
  bool is_at_end_ = false;
};

StdinCopies::~StdinCopies() {
  if (!shared_) return;
  const std::lock_guard lock(shared_->mutex);
  shared_->is_over = true;
  ::eventfd_write(shared_->wake.get(), 1);
}

std::vector<base::UniqueFd> StdinCopies::open(int ranks) {
  std::vector<base::UniqueFd> of_ranks, ours;
  for (int i = 0; i < ranks; ++i) {
    base::Pipe pipe = base::make_pipe();
    of_ranks.push_back(std::move(pipe.read_end));
    ours.push_back(base::moved_up(std::move(pipe.write_end), kFirstDescriptorToKeep));
    ::fcntl(ours.back().get(), F_SETFL, O_NONBLOCK);
  }
  const bool is_new = shared_ == nullptr;
  if (is_new) {
    shared_ = std::make_shared<Shared>();
    shared_->may_read = may_read_;
    shared_->wake = base::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!shared_->wake)
      throw base::system_error("make an eventfd", "raise the limit of open files");
    base::start_detached_thread([shared = shared_] { Pump(shared).run(); });
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->next_round = std::move(ours);
  }
  ::eventfd_write(shared_->wake.get(), 1);
  return of_ranks;
}

}  // namespace dtrun::launcher
