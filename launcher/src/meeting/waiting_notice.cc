#include "meeting/waiting_notice.h"

#include <algorithm>
#include <utility>

#include "output/notice.h"

namespace dtrun::launcher {
namespace {

// Nodes that are started by one command come within the first; then after 6, 14, 30, 62 s and so
// on.
constexpr base::Deadline::Duration kFirstPause = std::chrono::seconds(2);
constexpr base::Deadline::Duration kLongestPause = std::chrono::minutes(1);

}  // namespace

WaitingNotice::WaitingNotice(base::EventLoop& loop, const LaunchPlan& plan,
                             std::function<std::string()> text)
    : plan_(plan), text_(std::move(text)), timer_(loop) {}

void WaitingNotice::start() {
  wait(kFirstPause);
}

void WaitingNotice::wait(base::Deadline::Duration pause) {
  timer_.start(base::Deadline::after(pause), [this, pause] {
    if (const std::string text = text_(); !text.empty()) print_note(plan_, text);
    wait(std::min(2 * pause, kLongestPause));
  });
}

}  // namespace dtrun::launcher
