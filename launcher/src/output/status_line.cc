#include "output/status_line.h"

#include <fmt/core.h>
#include <sys/ioctl.h>

namespace dtrun::launcher {
namespace {

using base::Deadline;
using std::chrono::seconds;

// Five times a second.
constexpr auto kBetweenDrawings = std::chrono::milliseconds(200);

std::size_t columns_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string clock_text(std::chrono::nanoseconds elapsed) {
  const long long whole = std::chrono::duration_cast<seconds>(elapsed).count();
  const long long hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{:02}:{:02}", minutes, whole % 60);
}

}  // namespace

std::string status_text(const StatusFacts& facts, std::chrono::nanoseconds elapsed, Letters letters,
                        std::size_t columns) {
  const std::string between = letters == Letters::kUtf8 ? " \u00b7 " : " | ";
  std::string rounds;
  if (facts.round > 0) rounds = fmt::format("round {}", facts.round);
  if (facts.max_restarts > 0)
    rounds += fmt::format("{}restart {}/{}", rounds.empty() ? "" : ", ", facts.restarts,
                          facts.max_restarts);
  const std::string parts[] = {fmt::format("{}/{} up", facts.up, facts.ranks), rounds,
                               clock_text(elapsed)};
  std::string text;
  std::size_t width = 0;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    const std::size_t wanted = width + part.size() + (width > 0 ? 3 : 0);
    // The last column is left free: some terminals begin a new line after it.
    if (wanted >= columns) break;
    text += (width > 0 ? between : "") + part;
    width = wanted;
  }
  return text;
}

StatusLine::StatusLine(base::EventLoop& loop, base::OutputSink& sink, int fd, Letters letters)
    : sink_(sink), fd_(fd), letters_(letters), timer_(loop) {
  sink_.on_footer_gone([this] { draw_again(When::kSoon); });
}

StatusLine::~StatusLine() {
  sink_.on_footer_gone(nullptr);
}

void StatusLine::show(const StatusFacts& facts) {
  if (shown_ && facts == facts_) return;
  facts_ = facts;
  shown_ = true;
  draw_again(When::kSoon);
}

void StatusLine::hide() {
  shown_ = false;
  timer_.cancel();
  soon_ = false;
  sink_.clear_footer();
}

void StatusLine::draw_again(When when) {
  if (!shown_ || soon_) return;
  soon_ = when == When::kSoon;
  timer_.start(Deadline::after(soon_ ? Deadline::Duration(kBetweenDrawings) : seconds(1)),
               [this] { draw(); });
}

void StatusLine::draw() {
  soon_ = false;
  const auto elapsed = std::chrono::steady_clock::now() - start_;
  sink_.show_footer(status_text(facts_, elapsed, letters_, columns_of(fd_)));
  draw_again(When::kNextSecond);
}

}  // namespace dtrun::launcher
