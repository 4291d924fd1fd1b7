#include "hosts/host_link.h"

#include <fmt/core.h>

#include <algorithm>

#include "dtrun/base/env.h"
#include "dtrun/base/log.h"
#include "options/version.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using base::log::Component;

constexpr std::size_t kMostWordsBytes = 8 << 10;
// How long output is read after the remote shell's end. A process that the shell has left behind
// (ssh's ControlPersist) may hold the pipes for ever.
constexpr auto kDrainTime = std::chrono::milliseconds(500);

// The next word of a line; what follows it remains.
std::string_view take_word(std::string_view& text) {
  const auto end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

std::string line_of_port(std::uint16_t port) {
  return port != 0 ? fmt::format("port {}\n", port) : "";
}

}  // namespace

HostLink::HostLink(base::EventLoop& loop, HostSinks sinks, std::string host,
                   const base::ToolCommand& shell, HostLinkCallbacks callbacks)
    : loop_(loop),
      sinks_(sinks),
      host_(std::move(host)),
      shell_(shell.path.substr(shell.path.rfind('/') + 1)),
      callbacks_(std::move(callbacks)),
      drain_timer_(loop) {
  base::Pipe in = base::make_pipe(), out = base::make_pipe(), err = base::make_pipe();
  process_ = std::make_unique<base::ToolProcess>(
      loop, shell, base::ToolStreams{in.read_end.get(), out.write_end.get(), err.write_end.get()},
      [this](base::ExitStatus status) { on_process_end(status); });
  input_ = std::move(in.write_end);
  input_sink_ = std::make_unique<base::OutputSink>(loop, input_.get());
  using Beginnings = base::LineRelayOptions::Beginnings;
  const auto relay = [&](base::UniqueFd source, base::OutputSink& sink,
                         void (HostLink::*take)(std::string_view)) {
    base::LineRelayOptions options;
    options.put = [this, take](std::string_view bytes) { (this->*take)(bytes); };
    options.beginnings = Beginnings::kWithTheRest;
    return std::make_unique<base::LineRelay>(loop, std::move(source), sink, std::move(options),
                                             [this] {
                                               --streams_open_;
                                               become_gone();
                                             });
  };
  out_ = relay(std::move(out.read_end), sinks.out, &HostLink::on_out);
  err_ = relay(std::move(err.read_end), sinks.err, &HostLink::on_err);
}

HostLink::~HostLink() = default;

void HostLink::send_order(const HostOrder& order, std::uint16_t port) {
  stage_ = Stage::kPreparing;
  if (input_sink_) input_sink_->put(order.to_line() + line_of_port(port));
}

void HostLink::tell_port(std::uint16_t port) {
  if (input_sink_) input_sink_->put(line_of_port(port));
}

void HostLink::go() {
  stage_ = Stage::kRunning;
  if (input_sink_) input_sink_->put("go\n");
}

void HostLink::pass_signal(int signal_number) {
  if (input_sink_) input_sink_->put(fmt::format("signal {}\n", signal_number));
}

void HostLink::hang_up() {
  input_sink_.reset();
  input_.reset();
}

void HostLink::signal_shell(int signal_number) {
  process_->signal_group(signal_number);
}

HostAttempt HostLink::attempt(const std::string& remote_dtrun) const {
  return {.host = host_,
          .shell = shell_,
          .status = status_,
          .greeted = greeted_,
          .words = words_,
          .banner = banner_,
          .remote_dtrun = remote_dtrun};
}

// Whole lines, but for the last one of a stream and those that are longer than a relay's buffer.
void HostLink::on_out(std::string_view bytes) {
  if (!greeted_) return read_greeting(bytes);
  unread_ += bytes;
  while (!unread_.empty()) {
    const auto mark = unread_.find(mark_);
    const auto end = mark == std::string::npos ? mark : unread_.find('\n', mark);
    const std::size_t output =
        mark == std::string::npos ? unread_.size() - beginning_of_mark() : mark;
    if (output > 0) sinks_.out.put(std::string_view(unread_).substr(0, output));
    if (end == std::string::npos) {
      unread_.erase(0, output);
      return;
    }
    const std::string word = unread_.substr(mark + mark_.size(), end - mark - mark_.size());
    unread_.erase(0, end + 1);
    read_word(word);
  }
}

// How many bytes at the end of what is unread may be the beginning of a mark.
std::size_t HostLink::beginning_of_mark() const {
  const auto at = unread_.rfind(kHostMark);
  if (at == std::string::npos) return 0;
  const std::string_view tail = std::string_view(unread_).substr(at);
  return mark_.starts_with(tail) ? tail.size() : 0;
}

// What a login script prints may end without a line break, right before the greeting.
void HostLink::read_greeting(std::string_view bytes) {
  banner_ += bytes;
  const auto begin = banner_.find(kHostGreeting);
  const auto end = banner_.find('\n', begin);
  if (begin == std::string::npos || end == std::string::npos) {
    if (banner_.size() > kMostBannerBytes) banner_.erase(0, banner_.size() - kMostBannerBytes / 2);
    return;
  }
  const std::string line =
      banner_.substr(begin + kHostGreeting.size(), end - begin - kHostGreeting.size());
  const std::string rest = banner_.substr(end + 1);
  banner_.resize(begin);
  if (!banner_.empty())
    base::log::info(Component::kLauncher, "{} says before dtrun begins: {}", host_, banner_);
  greeted_ = true;
  read_line(line);
  if (!rest.empty()) on_out(rest);
}

void HostLink::read_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::string protocol(take_word(line)), version(take_word(line)), mark(take_word(line));
  const auto port = base::parse_integer(take_word(line));
  mark_ = kHostMark + mark + " ";
  if (protocol != std::to_string(kHostProtocol) || version != version_number() || mark.empty())
    return callbacks_.on_failures({other_version(host_, version)});
  callbacks_.on_greeting(static_cast<std::uint16_t>(port.value_or(0)));
}

void HostLink::read_word(std::string_view word) {
  if (word.ends_with('\r')) word.remove_suffix(1);
  const std::string_view verb = take_word(word);
  if (verb == "ready" && stage_ == Stage::kPreparing) {
    stage_ = Stage::kReady;
    callbacks_.on_ready();
  } else if (verb == "failed") {
    callbacks_.on_failures(failures_of_json(word));
  } else if (verb == "end") {
    end_code_ = static_cast<int>(base::parse_integer(word).value_or(0));
  }
}

// Before the ranks run, standard error is the remote shell's. It is kept, as the reason if the
// shell fails.
void HostLink::on_err(std::string_view bytes) {
  if (stage_ == Stage::kRunning) return sinks_.err.put(bytes);
  words_ += bytes;
  if (words_.size() > kMostWordsBytes) words_.erase(0, words_.size() - kMostWordsBytes);
}

void HostLink::on_process_end(base::ExitStatus status) {
  status_ = status;
  hang_up();
  drain_timer_.start(Deadline::after(kDrainTime), [this] { finish_streams(); });
  become_gone();
}

void HostLink::finish_streams() {
  if (!out_->ended()) out_->finish();
  if (!err_->ended()) err_->finish();
}

// Posted, because the callback may destroy this object.
void HostLink::become_gone() {
  if (!status_ || streams_open_ > 0 || stage_ == Stage::kGone) return;
  stage_ = Stage::kGone;
  if (greeted_ && !unread_.empty()) sinks_.out.put(unread_);
  drain_timer_.cancel();
  loop_.post([on_gone = callbacks_.on_gone] { on_gone(); });
}

}  // namespace dtrun::launcher
