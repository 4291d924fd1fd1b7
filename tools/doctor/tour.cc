#include "doctor/tour.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "doctor/agreement.h"
#include "doctor/visit.h"
#include "dtrun/base/child_process.h"
#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/json.h"
#include "dtrun/base/tool_process.h"
#include "options/exit_code.h"

namespace dtrun::doctor {
namespace {

namespace json = boost::json;
using base::Deadline;
using base::UniqueFd;
using std::chrono::seconds;

/// For a host to be reached and to look at itself; for an answer; for a remote shell to end.
constexpr auto kVisitTime = seconds(60), kAnswerTime = seconds(15), kEndTime = seconds(2);
constexpr int kClockSamples = 8;
/// Longer is neither an answer nor a banner.
constexpr std::size_t kMostBytes = 1 << 20;

/// One host's remote shell and the doctor behind it.
class Visited {
 public:
  Visited(base::EventLoop& loop, const ToldHost& host, const TourPlan& plan)
      : host_(host.name), reached_as_(host.reached_as) {
    const base::Environment environment = base::Environment::current();
    std::vector<std::string> words;
    if (!host.is_here) {
      words = plan.shell;
      words.push_back(host_);
    }
    words.insert(words.end(), plan.doctor.begin(), plan.doctor.end());
    shell_ = words.front();
    const std::string path = base::find_program(
        shell_, environment.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin"));
    base::Pipe in = base::make_pipe(), out = base::make_pipe(), err = base::make_pipe();
    to_host_ = std::move(in.write_end);
    from_host_ = std::move(out.read_end);
    errors_ = std::move(err.read_end);
    process_ = std::make_unique<base::ToolProcess>(
        loop, base::ToolCommand{path, {words.begin() + 1, words.end()}, environment.as_strings()},
        base::ToolStreams{
            .in = in.read_end.get(), .out = out.write_end.get(), .err = err.write_end.get()},
        [this](base::ExitStatus status) { status_ = status; });
    watch_.emplace(loop, from_host_.get());
    watch_->on_readable([this] { read_answers(); });
    error_watch_.emplace(loop, errors_.get());
    error_watch_->on_readable([this] { read_errors(); });
  }

  const std::string& host() const { return host_; }
  const std::string& reached_as() const { return reached_as_; }
  /// The doctor behind the shell has come, and the connection stands.
  bool talks() const { return greeting_ && !gone_; }
  bool is_decided() const { return greeting_ || (gone_ && status_); }
  bool has_ended() const { return status_.has_value(); }
  const json::object& greeting() const { return *greeting_; }

  /// Answers to earlier questions are not heard any more.
  void ask(json::object question) {
    answer_.reset();
    question["number"] = ++question_;
    const std::string line = json::serialize(question) + "\n";
    // Far less than a pipe holds.
    if (::write(to_host_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      gone_ = true;
  }
  bool has_answered() const { return answer_ || gone_; }
  /// It is not asked again.
  void give_up() { gone_ = true; }
  const std::optional<json::value>& answer() const { return answer_; }
  void hang_up() { to_host_.reset(); }

  launcher::HostFailure failure(const std::string& doctor) const {
    if (greeting_ && greeting_->at("dtrun-doctor") != DTRUN_VERSION)
      return launcher::other_version(host_, std::string(greeting_->at("dtrun-doctor").as_string()));
    return launcher::failure_of_attempt({.host = host_,
                                         .shell = shell_,
                                         .status = status_,
                                         .waited = kVisitTime,
                                         .greeted = greeting_.has_value(),
                                         .words = words_,
                                         .banner = banner_,
                                         .remote_dtrun = doctor});
  }

 private:
  void read_answers() {
    char bytes[16 << 10];
    const ssize_t n = ::read(from_host_.get(), bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0 || pending_.size() > kMostBytes) {
      gone_ = true;
      return watch_->on_readable(nullptr);
    }
    pending_.append(bytes, static_cast<std::size_t>(n));
    for (auto end = pending_.find('\n'); end != std::string::npos; end = pending_.find('\n')) {
      hear(pending_.substr(0, end));
      pending_.erase(0, end + 1);
    }
  }

  void hear(const std::string& line) {
    try {
      if (greeting_) {
        json::value answer = base::parse_json(line, host_ + "'s answer");
        if (answer.at("number") == question_) answer_ = std::move(answer);
      } else if (const auto at = line.find(kVisitGreeting); at != std::string::npos) {
        // A login shell may have said something before it.
        greeting_ = base::parse_json(line.substr(at), host_ + "'s greeting").as_object();
      } else {
        banner_ = line;
      }
    } catch (const std::exception& error) {
      words_ += error.what();
      gone_ = true;
    }
  }

  void read_errors() {
    char bytes[4096];
    const ssize_t n = ::read(errors_.get(), bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) return error_watch_->on_readable(nullptr);
    if (words_.size() < kMostBytes) words_.append(bytes, static_cast<std::size_t>(n));
  }

  std::string host_;
  std::string reached_as_;
  std::string shell_;
  UniqueFd to_host_, from_host_, errors_;
  std::unique_ptr<base::ToolProcess> process_;
  std::optional<base::ExitStatus> status_;
  std::optional<base::FdWatch> watch_, error_watch_;
  std::string pending_, words_, banner_;
  std::optional<json::object> greeting_;
  std::int64_t question_ = 0;
  std::optional<json::value> answer_;
  bool gone_ = false;
};

class Tour {
 public:
  explicit Tour(const TourPlan& plan) : plan_(plan) {
    for (const ToldHost& host : plan.hosts) {
      try {
        visits_.push_back(std::make_unique<Visited>(loop_, host, plan));
      } catch (const base::SpawnError&) {
        throw;  // there is no such remote shell
      } catch (const base::Error& error) {
        failures_.push_back({host.name, "is not visited", error.what(), "name fewer hosts at once",
                             launcher::kExitSystem});
      }
    }
  }

  TourReport take() {
    wait_for_all(kVisitTime, [](const Visited& visit) { return visit.is_decided(); });
    TourReport report;
    report.failures = failures_;
    for (const auto& visit : visits_) {
      if (visit->talks() && visit->greeting().at("dtrun-doctor") == DTRUN_VERSION) {
        hosts_.push_back(visit.get());
        report.reports.push_back(
            {visit->host(), findings_of_json(visit->greeting().at("findings"))});
      } else {
        report.failures.push_back(visit->failure(plan_.doctor.front()));
      }
    }
    compare_clocks(report);
    connect_all(report);
    for (const auto& visit : visits_) visit->hang_up();
    wait_for_all(kEndTime, [](const Visited& visit) { return visit.has_ended(); });
    return report;
  }

 private:
  using Is = std::function<bool(const Visited&)>;

  void wait_for_all(Deadline::Duration time, const Is& is) {
    const Deadline deadline = Deadline::after(time);
    const auto all = [&] {
      return std::ranges::all_of(visits_, [&](const auto& visit) { return is(*visit); });
    };
    while (!all() && !deadline.expired()) loop_.run_some(deadline);
  }

  static Nanoseconds now() { return std::chrono::system_clock::now().time_since_epoch(); }

  /// One host after the other, so that no other answer stands between the two readings.
  void compare_clocks(TourReport& report) {
    std::vector<std::vector<ClockSample>> samples(hosts_.size());
    for (std::size_t i = 0; i < hosts_.size(); ++i)
      for (int sample = 0; sample < kClockSamples; ++sample)
        if (!take_sample(*hosts_[i], samples[i])) break;
    const auto reference =
        std::ranges::find_if(samples, [](const auto& some) { return !some.empty(); });
    const auto first = static_cast<std::size_t>(reference - samples.begin());
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      if (i == first) continue;
      report.reports[i].findings.push_back(
          samples[i].empty() ? silent_clock()
                             : clock_finding(hosts_[first]->host(), clock_offset(samples[i]),
                                             clock_offset(*reference)));
    }
  }

  static Finding silent_clock() {
    return {"clock of hosts", Verdict::warning, "it has not answered with its time",
            "the doctor on it has ended, or its connection hangs", "ask it again"};
  }

  /// False: there was no answer.
  bool take_sample(Visited& visit, std::vector<ClockSample>& samples) {
    const Deadline deadline = Deadline::after(kAnswerTime);
    const Nanoseconds asked = now();
    visit.ask({{"ask", "time"}});
    while (!visit.has_answered() && !deadline.expired()) loop_.run_some(deadline);
    const Nanoseconds answered = now();
    const json::value* const time = visit.answer() && visit.answer()->is_object()
                                        ? visit.answer()->as_object().if_contains("time")
                                        : nullptr;
    if (time == nullptr || !time->is_int64()) {
      visit.give_up();
      return false;
    }
    samples.push_back({asked, Nanoseconds(time->as_int64()), answered});
    return true;
  }

  void connect_all(TourReport& report) {
    if (hosts_.size() < 2) return;
    for (std::size_t i = 0; i < hosts_.size(); ++i)
      hosts_[i]->ask({{"ask", "connect"}, {"to", targets(i)}});
    const auto is_asked = [&](const Visited& visit) {
      return std::ranges::find(hosts_, &visit) != hosts_.end();
    };
    wait_for_all(kAnswerTime,
                 [&](const Visited& visit) { return !is_asked(visit) || visit.has_answered(); });
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const Findings found = found_by(*hosts_[i]);
      Findings& all = report.reports[i].findings;
      all.insert(all.end(), found.begin(), found.end());
    }
  }

  json::array targets(std::size_t host) const {
    json::array targets;
    for (const std::size_t other : targets_of(host, hosts_.size())) {
      const json::object& greeting = hosts_[other]->greeting();
      for (const json::value& port : greeting.at("ports").as_array())
        targets.push_back(json::object{
            {"host", hosts_[other]->reached_as()}, {"port", port}, {"mark", greeting.at("mark")}});
    }
    return targets;
  }

  static Findings found_by(const Visited& visit) {
    try {
      if (visit.answer()) return reach_findings(reaches_in(visit.answer()->at("reached")));
    } catch (const std::exception&) {  // it talks nonsense
    }
    return {{"reaches", Verdict::warning, "it has not told whom",
             "the doctor on it has ended, or its connection hangs", "ask it again"}};
  }

  static std::vector<Reach> reaches_in(const json::value& list) {
    std::vector<Reach> reaches;
    for (const json::value& one : list.as_array())
      reaches.push_back({std::string(one.at("host").as_string()), one.at("port").to_number<int>(),
                         std::string(one.at("error").as_string()),
                         Nanoseconds(one.at("nanoseconds").as_int64())});
    return reaches;
  }

  const TourPlan& plan_;
  base::EventLoop loop_;
  std::vector<std::unique_ptr<Visited>> visits_;
  std::vector<Visited*> hosts_;  // those that have come
  std::vector<launcher::HostFailure> failures_;
};

}  // namespace

TourReport tour(const TourPlan& plan) {
  return Tour(plan).take();
}

}  // namespace dtrun::doctor
