#include "verdict/metrics.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>

#include "dtrun/base/exit_status.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "dtrun/base/utf8.h"
#include "options/version.h"

namespace dtrun::launcher {
namespace {

namespace rounds = rendezvous::rounds;
using std::chrono::duration;
using std::chrono::nanoseconds;

enum class Type { kCounter, kGauge };
struct Label {
  const char* name;
  std::string value;
};

std::string escaped(const std::string& value) {
  std::string result;
  for (const char c : base::as_utf8(value)) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result;
}

double seconds(nanoseconds time) {
  return duration<double>(time).count();
}

// Times to the microsecond; everything else is whole.
std::string written(double value) {
  return value == static_cast<double>(static_cast<std::int64_t>(value))
             ? fmt::format("{}", static_cast<std::int64_t>(value))
             : fmt::format("{:.6f}", value);
}

void begin(std::string& text, const char* name, Type type, const char* help) {
  text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name,
                      type == Type::kCounter ? "counter" : "gauge");
}

void add(std::string& text, const char* name, std::initializer_list<Label> labels, double value) {
  std::string inner;
  for (const Label& label : labels)
    inner += fmt::format("{}{}=\"{}\"", inner.empty() ? "" : ",", label.name, escaped(label.value));
  text += fmt::format("{}{} {}\n", name, inner.empty() ? "" : "{" + inner + "}", written(value));
}

void tell(std::string& text, const char* name, Type type, const char* help, double value) {
  begin(text, name, type, help);
  add(text, name, {}, value);
}

// The fields of /proc/self/stat after the program's name, which may hold blanks; [0] is the state.
std::vector<std::string> fields_of_stat() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream rest(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

double start_time() {
  constexpr std::size_t kStartTime = 19;  // since the machine's start, in ticks
  const auto fields = fields_of_stat();
  timespec boot{}, now{};
  ::clock_gettime(CLOCK_BOOTTIME, &boot);
  ::clock_gettime(CLOCK_REALTIME, &now);
  const auto seconds_of = [](const timespec& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  };
  const double ticks = fields.size() > kStartTime ? std::stod(fields[kStartTime]) : 0;
  return seconds_of(now) - seconds_of(boot) + ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

double open_descriptors() {
  std::error_code none;
  const std::filesystem::directory_iterator files("/proc/self/fd", none);
  // One of them reads the folder.
  return none ? 0 : static_cast<double>(std::distance(begin(files), end(files)) - 1);
}

}  // namespace

// The start time is found once: two clocks make it, which are never read at the same moment.
Metrics::Metrics(const LaunchPlan& plan)
    : plan_(plan), start_time_(plan.options.metrics ? start_time() : 0) {}

void Metrics::round_began(const JobOutcome& outcome, int world_size) {
  ++rounds_;
  node_ = plan_.shown_node(outcome.group_rank);
  round_ = outcome.round;
  first_rank_ = outcome.base_rank;
  first_local_rank_ = outcome.first_local_rank;
  world_size_ = world_size;
  restarts_ = outcome.restarts;
  round_start_ = Clock::now();
  up_.clear();
  for (int rank = 0; rank < outcome.local_ranks; ++rank) up_[rank] = false;
}

void Metrics::ranks_started(const JobOutcome& outcome, const Spawned& spawned,
                            base::UniqueFd page) {
  if (page) watch(page);
  starts_ += outcome.local_ranks;
  start_duration_ = nanoseconds(spawned.last - spawned.began);
  for (auto& [rank, up] : up_) up = true;
}

void Metrics::watch(const base::UniqueFd& page) {
  for (int rank = 0; page_ && rank < page_->slot_count(); ++rank) {
    rounds_before_[rank].operations += page_->slot(rank).operations;
    rounds_before_[rank].bytes += page_->slot(rank).bytes;
  }
  page_.reset();
  try {
    page_ = rendezvous::JobPage::open(page.get());
    page_->close_file();
  } catch (const base::Error& error) {
    base::log::warning(base::log::Component::kLauncher, "metrics will not count collectives: {}",
                       error.what());
  }
}

void Metrics::rank_ended(const RankEnd& end) {
  ++ends_[{end.code, end.signal}];
  if (end.oom != 0) ++out_of_memory_;
  up_[end.local_rank] = false;
}

void Metrics::failed(const rounds::JobFailure& failure) {
  ++failures_[failure.rank < 0 ? Cause::kNode : Cause::kRank];
}

void Metrics::round_ended(const JobOutcome& outcome) {
  lost_output_bytes_ = outcome.group_end.lost_output_bytes;
  lost_file_bytes_ = outcome.group_end.lost_file_bytes;
  for (auto& [rank, up] : up_) up = false;
}

void Metrics::tell_job(std::string& text) const {
  begin(text, "dtrun_job_info", Type::kGauge, "1, with what names the job and this node.");
  add(text, "dtrun_job_info",
      {{"run_id", plan_.run_id},
       {"program", plan_.program_name(-1)},
       {"host", base::host_name()},
       {"node", node_ < 0 ? "" : std::to_string(node_)},
       {"version", std::string(version_number())}},
      1);
  tell(text, "dtrun_local_ranks", Type::kGauge, "Ranks of this node in a round.",
       plan_.local_ranks);
  tell(text, "dtrun_world_size", Type::kGauge, "Ranks of all nodes in the last round; 0: none yet.",
       world_size_);
  tell(text, "dtrun_round", Type::kGauge, "Number of the last round; -1: none has begun.", round_);
  tell(text, "dtrun_rounds_total", Type::kCounter, "Rounds that have begun on this node.",
       static_cast<double>(rounds_));
  tell(text, "dtrun_restarts_total", Type::kCounter, "Restarts of the job.", restarts_);
  tell(text, "dtrun_max_restarts", Type::kGauge, "Restarts that the job may have.",
       plan_.options.rounds.max_restarts);
  if (round_start_)
    tell(text, "dtrun_round_start_time_seconds", Type::kGauge,
         "Begin of the last round since the epoch.", seconds(round_start_->time_since_epoch()));
  if (start_duration_)
    tell(text, "dtrun_round_start_duration_seconds", Type::kGauge,
         "From the first to the last start of a rank in the last round.",
         seconds(*start_duration_));
  begin(text, "dtrun_failures_total", Type::kCounter,
        "First failures of this node's rounds, by what failed: a rank, or the node.");
  for (const auto& [cause, name] : {std::pair{Cause::kRank, "rank"}, {Cause::kNode, "node"}}) {
    const auto found = failures_.find(cause);
    add(text, "dtrun_failures_total", {{"cause", name}},
        found == failures_.end() ? 0 : static_cast<double>(found->second));
  }
  tell(text, "dtrun_output_lost_bytes_total", Type::kCounter,
       "Bytes of the ranks that could not be written to dtrun's own output, in ended rounds.",
       static_cast<double>(lost_output_bytes_));
  tell(text, "dtrun_files_lost_bytes_total", Type::kCounter,
       "Bytes of the ranks that could not be written to their files, in ended rounds.",
       static_cast<double>(lost_file_bytes_));
}

void Metrics::tell_ranks(std::string& text) const {
  const auto running =
      std::count_if(up_.begin(), up_.end(), [](const auto& of) { return of.second; });
  tell(text, "dtrun_ranks_running", Type::kGauge, "Ranks of this node that run.",
       static_cast<double>(running));
  tell(text, "dtrun_rank_starts_total", Type::kCounter,
       "Ranks started on this node, in rounds in which all could be.",
       static_cast<double>(starts_));
  begin(text, "dtrun_rank_ends_total", Type::kCounter,
        "Ranks of ended rounds of this node, by exit code or signal.");
  for (const auto& [end, count] : ends_)
    add(text, "dtrun_rank_ends_total",
        {{"exitcode", end.second == 0 ? std::to_string(end.first) : ""},
         {"signal", end.second == 0 ? "" : base::signal_name(end.second)}},
        static_cast<double>(count));
  tell(text, "dtrun_ranks_out_of_memory_total", Type::kCounter,
       "Ranks of ended rounds that the kernel's OOM killer has ended.",
       static_cast<double>(out_of_memory_));
  begin(text, "dtrun_rank_up", Type::kGauge, "1: the rank runs. Of the last round.");
  for (const auto& [rank, up] : up_)
    add(text, "dtrun_rank_up",
        {{"rank", std::to_string(first_rank_ + rank)},
         {"local_rank", std::to_string(first_local_rank_ + rank)},
         {"program", plan_.program_name(rank)}},
        up ? 1 : 0);
}

// A rank writes its slot, and can write anything there: all numbers are only told.
void Metrics::tell_collectives(std::string& text) const {
  if (!page_) return;
  const auto before = [&](int rank) {
    const auto found = rounds_before_.find(rank);
    return found == rounds_before_.end() ? Communication() : found->second;
  };
  struct Sample {
    bool is_busy;
    Communication done;
  };
  std::map<int, Sample> samples;
  for (const auto& [rank, up] : up_) {
    if (rank >= page_->slot_count()) continue;
    const rendezvous::RankSlot& slot = page_->slot(rank);
    // First the state: a rank that is told to be in a call has counted that call.
    Sample& sample = samples[rank];
    sample.is_busy = up && state_of(slot) == rendezvous::RankState::kInCollective;
    sample.done = before(rank);
    sample.done.operations += slot.operations.load();
    sample.done.bytes += slot.bytes.load();
  }
  const auto of_ranks = [&](const char* name, Type type, const char* help, const auto& value_of) {
    begin(text, name, type, help);
    for (const auto& [rank, sample] : samples)
      add(text, name, {{"rank", std::to_string(first_rank_ + rank)}},
          static_cast<double>(value_of(sample)));
  };
  of_ranks("dtrun_rank_collectives_total", Type::kCounter,
           "Collectives and messages that the rank has begun, in all rounds.",
           [](const Sample& sample) { return sample.done.operations; });
  of_ranks("dtrun_rank_collective_bytes_total", Type::kCounter,
           "Bytes of the rank's tensors in them, given and got.",
           [](const Sample& sample) { return sample.done.bytes; });
  of_ranks("dtrun_rank_in_collective", Type::kGauge, "1: the rank is in a collective or a message.",
           [](const Sample& sample) { return sample.is_busy ? 1 : 0; });
}

void Metrics::tell_process(std::string& text) const {
  tell(text, "process_start_time_seconds", Type::kGauge, "Start of this dtrun since the epoch.",
       start_time_);
  tell(text, "process_cpu_seconds_total", Type::kCounter,
       "CPU time of this dtrun, without guard and ranks.", cpu_seconds());
  tell(text, "process_resident_memory_bytes", Type::kGauge, "Resident memory of this dtrun.",
       resident_bytes());
  tell(text, "process_open_fds", Type::kGauge, "Open descriptors of this dtrun.",
       open_descriptors());
}

std::string Metrics::text() const {
  std::string text;
  tell_job(text);
  tell_ranks(text);
  tell_collectives(text);
  tell_process(text);
  return text;
}

}  // namespace dtrun::launcher
