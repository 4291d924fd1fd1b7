#include "all_works.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace dtrun::dist {
namespace {

using collectives::Work;

class AllWorks : public Work::State {
 public:
  /// As they all are: it is over when the last of them is.
  static Work of(std::vector<Work> works, Clock::time_point started) {
    const auto all = std::make_shared<AllWorks>(std::move(works), started);
    const auto one_is_over = [all](const std::exception_ptr& error) { all->count_down(error); };
    for (const Work& work : all->works_) static_cast<void>(work.then(one_is_over));
    all->count_down(nullptr);  // this function's own: there may be no other
    return Work(all);
  }
  AllWorks(std::vector<Work> works, Clock::time_point started)
      : Work::State(started), works_(std::move(works)), left_(works_.size() + 1) {}

  void wait(base::Deadline deadline) override {
    for (const Work& work : works_) work.wait(deadline);
  }
  bool is_completed() override { return std::ranges::all_of(works_, &Work::is_completed); }
  std::exception_ptr exception() override {
    for (const Work& work : works_) {
      if (std::exception_ptr failure = work.exception()) return failure;
    }
    return nullptr;
  }

 private:
  /// The error is handed in: an operation tells its callbacks before its exception() does.
  void count_down(const std::exception_ptr& error) {
    std::function<void()> callbacks;
    {
      const std::scoped_lock lock(mutex_);
      if (!error_) error_ = error;
      if (--left_ > 0) return;
      callbacks = settle(error_, nullptr);
    }
    if (callbacks) callbacks();
  }

  const std::vector<Work> works_;
  std::mutex mutex_;
  std::size_t left_;
  std::exception_ptr error_;  ///< the first
};

}  // namespace

Work all_of(std::vector<Work> works, Work::State::Clock::time_point started) {
  return AllWorks::of(std::move(works), started);
}

}  // namespace dtrun::dist
