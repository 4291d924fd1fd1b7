#include "output.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace dtrun::launcher {
namespace {

constexpr std::size_t kTailBytes = 8 << 10;
constexpr int kTailLines = 20;

bool same_file(int a, int b) {
  struct stat first {
  }, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

Output::Output(base::EventLoop& loop, const LaunchPlan& plan)
    : loop_(loop), plan_(plan), out_(std::make_unique<base::OutputSink>(loop, STDOUT_FILENO)) {
  // Two sinks on one pipe could each be in the middle of a line.
  if (!same_file(STDOUT_FILENO, STDERR_FILENO))
    error_ = std::make_unique<base::OutputSink>(loop, STDERR_FILENO);
}

std::string Output::tag(OutputOrigin origin, int fd) const {
  const bool terminal = ::isatty(fd) == 1;
  const Tagging tagging = plan_.options.tagging;
  if (tagging == Tagging::kNever || (tagging == Tagging::kAuto && !terminal)) return "";
  const std::string text = fmt::format("[{}:{}]", origin.node_rank, origin.rank);
  if (!terminal || !plan_.colour) return text + " ";
  static constexpr int kColours[] = {36, 32, 33, 35, 34, 96, 92, 93};
  return fmt::format("\x1b[{}m{}\x1b[0m ", kColours[static_cast<std::size_t>(origin.rank) % 8],
                     text);
}

void Output::begin_round() {
  for (auto& relay : relays_) past_relays_.push_back(std::move(relay));
  relays_.clear();
  std::erase_if(past_relays_, [](const auto& relay) { return relay->ended(); });
}

void Output::relay(base::UniqueFd source, base::OutputSink& sink, base::LineRelayOptions options) {
  relays_.push_back(
      std::make_unique<base::LineRelay>(loop_, std::move(source), sink, std::move(options), [this] {
        if (on_stream_end_) on_stream_end_();
      }));
}

void Output::add(OutputOrigin origin, base::UniqueFd out, base::UniqueFd err) {
  relay(std::move(out), *out_, {tag(origin, STDOUT_FILENO), 0});
  relay(std::move(err), error_sink(), {tag(origin, STDERR_FILENO), kTailBytes});
}

bool Output::ended() const {
  const auto all_ended = [](const Relays& relays) {
    return std::all_of(relays.begin(), relays.end(),
                       [](const auto& relay) { return relay->ended(); });
  };
  return all_ended(relays_) && all_ended(past_relays_);
}

bool Output::idle() const {
  return out_->idle() && (!error_ || error_->idle());
}

void Output::on_idle(const base::EventLoop::Callback& callback) {
  out_->on_idle(callback);
  if (error_) error_->on_idle(callback);
}

void Output::finish() {
  for (const Relays* relays : {&past_relays_, &relays_})
    for (const auto& relay : *relays) relay->finish();
}

void Output::abandon() {
  out_->abandon();
  if (error_) error_->abandon();
}

std::string Output::error_tail(int local_rank) const {
  const std::string& tail = relays_[2 * static_cast<std::size_t>(local_rank) + 1]->tail();
  std::size_t begin = tail.size() > kTailBytes ? tail.size() - kTailBytes : 0;
  std::size_t at = tail.size();
  if (at > 0 && tail[at - 1] == '\n') --at;
  for (int lines = 0; lines < kTailLines; ++lines) {
    const auto newline = at == 0 ? std::string::npos : tail.rfind('\n', at - 1);
    if (newline == std::string::npos || newline < begin) return tail.substr(begin);
    at = newline;
  }
  return tail.substr(at + 1);
}

std::uint64_t Output::lost_bytes() const {
  return out_->lost_bytes() + (error_ ? error_->lost_bytes() : 0);
}

int Output::error_number() const {
  return out_->error_number() != 0 ? out_->error_number() : (error_ ? error_->error_number() : 0);
}

}  // namespace dtrun::launcher
