#include "hosts/host_relay.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "dtrun/base/child_process.h"
#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/process_tree.h"
#include "dtrun/base/socket.h"
#include "dtrun/base/tool_process.h"
#include "hosts/host_order.h"
#include "hosts/host_place.h"
#include "hosts/host_starter.h"
#include "options/exit_code.h"
#include "options/port_range.h"
#include "options/version.h"
#include "output/notice.h"
#include "plan/launch_plan.h"
#include "sources/option_sources.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;

// How long the reader of the output may take, and the keeper of a dtrun that was killed.
constexpr auto kLastPatience = std::chrono::seconds(10);
// How much later than at the first host the word to start may come.
constexpr auto kLateWord = std::chrono::seconds(2);

void demand_starter() {
  struct stat status {};
  if (::fstat(STDIN_FILENO, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)))
    return;
  throw Error(ErrorCode::kUsage, "--remote-agent is what dtrun --hosts starts on a host",
              "standard input is no pipe", "dtrun --hosts=a:4,b:4 PROGRAM");
}

// Listens at all addresses: on the first host its own name may resolve to an address (127.0.1.1 on
// Debian) that the others cannot reach.
base::UniqueFd listen_for_all(const std::string& ports) {
  const PortRange range = ports == "0" ? PortRange{} : parse_port_range(ports);
  try {
    return listen_in_range("::", range);
  } catch (const Error&) {
    return listen_in_range("0.0.0.0", range);  // no IPv6 here; else it says why
  }
}

std::string new_mark() {
  std::array<unsigned char, 8> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw base::system_error("get random bytes");
  std::string mark;
  for (const unsigned char byte : bytes) mark += fmt::format("{:02x}", byte);
  return mark;
}

// To one that reads, or is gone.
void tell_all(std::string_view text, int fd) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno != EINTR) return;
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(put, 0)));
  }
}

// Finds out what the job's dtrun would refuse before any rank is started on any host.
void check_job(const std::vector<std::string>& arguments, const base::Environment& environment) {
  const Options options = parse_options("dtrun", arguments, environment);
  make_plan(options, environment, look_at_machine(options, environment));
}

class HostRelay {
 public:
  HostRelay(std::string mark, std::vector<pid_t> not_ours, base::UniqueFd listener,
            NodeProcess node, const base::Environment& environment)
      : not_ours_(std::move(not_ours)),
        listener_(std::move(listener)),
        node_(std::move(node)),
        environment_(environment),
        own_path_(own_program_path()),
        out_(loop_, STDOUT_FILENO),
        err_(loop_, STDERR_FILENO),
        input_(loop_, STDIN_FILENO),
        kill_timer_(loop_),
        mark_(std::move(mark)) {}

  int run() {
    const base::SignalWatch signals(loop_, {SIGTERM, SIGINT, SIGHUP, SIGQUIT},
                                    [this](int) { stop(); });
    const base::SignalWatch children(loop_, {SIGCHLD}, [this](int) { on_child_signal(); });
    input_.on_readable([this] { read_input(); });
    loop_.run();
    leave_nothing();
    return code_;
  }

 private:
  void read_input() {
    std::array<char, 64 << 10> buffer;
    const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) return on_input_end();
    unread_.append(buffer.data(), static_cast<std::size_t>(got));
    for (auto end = unread_.find('\n'); end != std::string::npos; end = unread_.find('\n')) {
      const std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      take_line(line);
    }
    if (unread_.size() > kMostOrderBytes) fail({ErrorCode::kProtocol, "the order is too long"});
  }

  void on_input_end() {
    input_.on_readable(nullptr);
    stop();
  }

  void take_line(const std::string& line) {
    if (failed_) return;
    if (!order_) return prepare(line);
    const auto blank = std::min(line.find(' '), line.size() - 1);
    const auto number = base::parse_integer(std::string_view(line).substr(blank + 1));
    if (line.starts_with("port ") && number) tell_port(static_cast<std::uint16_t>(*number));
    if (line == "go") go();
    if (line.starts_with("signal ") && number) pass_signal(static_cast<int>(*number));
  }

  // Every error of this host is reported before the ranks of any host run. Its dtrun, which does
  // not know yet where to join, gets ready meanwhile.
  void prepare(const std::string& line) {
    try {
      order_ = HostOrder::parse(line);
      enter_folder(order_->folder, "--wdir");
      for (const auto& [name, value] : order_->environment) environment_.set(name, value);
      for (const std::string& name : variables_of_hosts()) environment_.unset(name);
      start_below();
      const std::uint16_t port = listener_ ? base::local_port(listener_.get()) : 0;
      start_job(line);
      check_job(node_arguments(*order_, order_->nodes.front(), std::nullopt), environment_);
      if (port != 0) tell_port(port);
    } catch (const Error& error) {
      return fail(error);
    }
    if (!below_) tell("ready");
  }

  void start_below() {
    HostOrder order = *order_;
    order.nodes.erase(order.nodes.begin());
    if (order.nodes.empty()) return;
    HostStarterCallbacks callbacks;
    callbacks.on_ready = [this] { tell("ready"); };
    callbacks.on_failures = [this](const std::vector<HostFailure>& failures) {
      on_failures_below(failures);
    };
    callbacks.on_end = [this](int code) { on_below_end(code); };
    below_ = std::make_unique<HostStarter>(
        loop_, HostSinks{out_, err_},
        HostStarterSetup{
            .order = std::move(order), .environment = environment_, .own_path = own_path_},
        std::move(callbacks));
    below_running_ = true;
  }

  // Its dtrun has been started, and waits for this line.
  void tell_port(std::uint16_t port) {
    if (joins_ || stopping_) return;
    joins_ = true;
    tell_job(fmt::format("{}\n", port));
    if (below_) below_->set_port(port);
  }

  void go() {
    if (running_ || stopping_) return;
    running_ = true;
    err_.put(std::exchange(job_words_, {}));
    job_ended_ ? take_code(job_code_) : tell_job("go\n");
    if (below_) below_->go();
    end_if_over();
  }

  // It reads. If it ends instead, on_job_end() takes its code.
  void tell_job(const std::string& line) { tell_all(line, node_.input.get()); }

  // Before the other hosts are ready: it takes some ms to read its options and to fork its guard.
  // What it says until then is kept, and is told if the job begins, or as the reason where this
  // dtrun fails. Where hosts below have output, too, that of the job goes by this process: their
  // lines stay whole.
  void start_job(const std::string& line) {
    job_ = std::make_unique<base::ToolProcess>(
        loop_, node_.pid, [this](base::ExitStatus status) { on_job_end(status); });
    listener_.reset();
    tell_all(line, node_.order.get());
    node_.order.reset();
    base::LineRelayOptions to_words;
    to_words.put = [this](std::string_view bytes) {
      running_ ? err_.put(bytes) : void(job_words_ += bytes);
    };
    to_words.beginnings = base::LineRelayOptions::Beginnings::kWithTheRest;
    job_err_ = relay(std::move(node_.err), err_, std::move(to_words));
    if (below_) job_out_ = relay(std::move(node_.out), out_, {});
    node_.out.reset();
  }

  std::unique_ptr<base::LineRelay> relay(base::UniqueFd source, base::OutputSink& sink,
                                         base::LineRelayOptions options) {
    ++streams_;
    return std::make_unique<base::LineRelay>(loop_, std::move(source), sink, std::move(options),
                                             [this] {
                                               --streams_;
                                               end_if_over();
                                             });
  }

  void pass_signal(int number) {
    if (!running_) return;
    // SIGCONT may come before the job's dtrun has stopped itself, and would be lost: it is sent
    // again once the dtrun has stopped.
    continue_when_stopped_ = number == SIGCONT && job_ && !job_->stopped();
    if (job_) job_->signal(number);
    if (below_) below_->pass_signal(number);
  }

  void on_child_signal() {
    if (!continue_when_stopped_ || !job_->stopped()) return;
    continue_when_stopped_ = false;
    job_->signal(SIGCONT);
  }

  // Called when the starter demands the end or is gone. The job's dtrun gets as much time as its
  // ranks have.
  void stop() {
    if (stopping_) return;
    stopping_ = true;
    if (below_) below_->stop();
    if (job_ && job_->running()) {
      // Before "go" it ends when its input ends, whatever its signals mean, and removes what it has
      // made.
      running_ ? job_->signal(SIGTERM) : node_.input.reset();
      job_->signal(SIGCONT);
      kill_timer_.start(Deadline::after(order_->grace), [this] { job_->signal(SIGKILL); });
    }
    end_if_over();
  }

  void fail(const Error& error) { fail(error, exit_code_of_error(error, CalledAs::kDtrun)); }
  void fail(const Error& error, int code) {
    failed_ = true;
    code_ = code;
    const std::string host = order_ ? order_->nodes.front().host : base::host_name();
    tell("failed " +
         failures_to_json({{host, error.summary(), error.why(), error.remedy(), code_}}));
    stop();
  }

  void on_job_end(base::ExitStatus status) {
    kill_timer_.cancel();
    job_ended_ = true;
    job_code_ = status.shell_code();
    if (running_) take_code(job_code_);
    end_if_over();
  }

  // Once the job runs, the loss of a host below ends the job here, too.
  void on_failures_below(const std::vector<HostFailure>& failures) {
    if (!running_) return tell("failed " + failures_to_json(failures));
    print_error(failure_text(failures, HostPhase::kJob, order_->node_count));
    take_code(exit_code_of(failures));
    stop();
  }

  void on_below_end(int code) {
    below_running_ = false;
    take_code(code);
    running_ || stopping_ ? end_if_over() : stop();
  }

  // Ranks that end at once may have ended before the word that let them start comes here, too.
  void await_go() {
    kill_timer_.start(Deadline::after(kLateWord), [this] {
      if (!running_ && !stopping_) fail_by_words();
    });
  }

  // Its dtrun has ended before the job began: nobody has read what it said.
  void fail_by_words() {
    constexpr std::string_view kMark = "dtrun: error: ";
    const auto at = job_words_.find(kMark);
    const std::string text =
        at == std::string::npos ? job_words_ : job_words_.substr(at + kMark.size());
    fail({ErrorCode::kSystem,
          fmt::format("its dtrun ended with exit code {} before the job began", job_code_),
          text.substr(0, text.find('\n'))},
         job_code_ == 0 ? kExitSystem : job_code_);
  }

  void take_code(int code) {
    if (code_ == 0) code_ = code;
  }

  void end_if_over() {
    const bool job_runs = job_ != nullptr && !job_ended_;
    if (job_runs || streams_ > 0 || finished_) return;
    if (job_ && !running_ && !stopping_) return joins_ ? await_go() : fail_by_words();
    if (below_running_ || (!running_ && !stopping_)) return;
    finished_ = true;
    if (running_) tell(fmt::format("end {}", code_));
    // Waits until the last words are written, but not for ever: a dead starter reads nothing.
    kill_timer_.start(Deadline::after(kLastPatience), [this] { loop_.stop(); });
    out_.on_idle([this] { stop_if_idle(); });
    err_.on_idle([this] { stop_if_idle(); });
    loop_.post([this] { stop_if_idle(); });
  }

  void stop_if_idle() {
    if (out_.idle() && err_.idle()) loop_.stop();
  }

  void tell(const std::string& word) { out_.put(fmt::format("{}{} {}\n", kHostMark, mark_, word)); }

  // The keeper of a killed dtrun becomes a child of this process, and ends what is left.
  void leave_nothing() {
    below_.reset();
    job_.reset();
    node_.order.reset();
    const Deadline deadline = Deadline::after(kLastPatience);
    for (const pid_t child : base::child_pids())
      if (std::ranges::find(not_ours_, child) == not_ours_.end() &&
          base::await_end(child, deadline))
        ::waitpid(child, nullptr, 0);
    base::kill_descendants(not_ours_, deadline);
  }

  /// What a login script had started before it became this process.
  const std::vector<pid_t> not_ours_;
  base::EventLoop loop_;
  base::UniqueFd listener_;  // of the first host, until its dtrun has it
  NodeProcess node_;
  base::Environment environment_;
  const std::string own_path_;
  base::OutputSink out_, err_;
  base::FdWatch input_;
  base::Timer kill_timer_;
  const std::string mark_;
  std::string unread_;
  std::optional<HostOrder> order_;
  std::unique_ptr<HostStarter> below_;
  std::unique_ptr<base::ToolProcess> job_;
  std::unique_ptr<base::LineRelay> job_out_, job_err_;
  std::string job_words_;  // before it runs
  int streams_ = 0;        // of the job, that are being read
  int code_ = 0;
  int job_code_ = 0;
  bool below_running_ = false;
  bool joins_ = false;    // its dtrun knows where the nodes meet
  bool running_ = false;  // and all hosts are ready
  bool continue_when_stopped_ = false;
  bool job_ended_ = false;
  bool failed_ = false;
  bool stopping_ = false;
  bool finished_ = false;
};

}  // namespace

int run_host_relay(const std::string& ports, const base::Environment& environment,
                   const NodeProcess::Run& run) {
  demand_starter();
  base::become_subreaper();
  std::vector<pid_t> not_ours = base::child_pids();
  base::UniqueFd listener = ports.empty() ? base::UniqueFd() : listen_for_all(ports);
  std::string mark = new_mark();
  const std::string greeting =
      fmt::format("{}{} {} {} {}\n", kHostGreeting, kHostProtocol, version_number(), mark,
                  listener ? base::local_port(listener.get()) : 0);
  // First, so that all else is done while it travels. A starter that is gone ends the input, too.
  tell_all(greeting, STDOUT_FILENO);
  NodeProcess node = NodeProcess::fork(listener.get(), run);
  return HostRelay(std::move(mark), std::move(not_ours), std::move(listener), std::move(node),
                   environment)
      .run();
}

}  // namespace dtrun::launcher
