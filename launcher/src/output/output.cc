#include "output/output.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "dtrun/base/error.h"

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

void add_loss(FileLoss& sum, const FileLoss& loss) {
  sum.bytes += loss.bytes;
  if (sum.error_number == 0) sum.error_number = loss.error_number;
}

// With a report of Python's faulthandler, which is kept whole, the last lines before it.
std::string last_lines(const std::string& text) {
  std::size_t at = std::min(text.size(), text.rfind(kPythonFault));
  if (at > 0 && text[at - 1] == '\n') --at;
  for (int lines = 0; lines < kTailLines; ++lines) {
    const auto newline = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
    if (newline == std::string::npos) return text;
    at = newline;
  }
  return text.substr(at + 1);
}

}  // namespace

base::UniqueFd open_null() {
  base::UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!null) throw base::system_error("open /dev/null");
  return null;
}

std::string file_loss_text(const std::string& why) {
  return fmt::format(
      "cannot write the ranks' log files: {}; what does not get into them is still shown here, and "
      "the job runs on",
      why);
}

Output::Output(base::EventLoop& loop, const LaunchPlan& plan)
    : loop_(loop),
      plan_(plan),
      readers_(loop),
      out_(std::make_unique<Console>(loop, STDOUT_FILENO, plan)) {
  // Two sinks on one pipe could each be in the middle of a line.
  if (!same_file(STDOUT_FILENO, STDERR_FILENO))
    error_ = std::make_unique<Console>(loop, STDERR_FILENO, plan);
  out_->sink().observe([this](std::string_view bytes) { readers_.add(Stream::kOut, bytes); });
  if (error_)
    error_->sink().observe([this](std::string_view bytes) { readers_.add(Stream::kError, bytes); });
  for (Console* const console : {out_.get(), error_.get()})
    if (console != nullptr && console->sink().is_terminal())
      // While the shell has the terminal, its prompt stands where the status line was.
      console->sink().ask_before_erasing([&plan] { return plan.foreground->is_ours(); });
  if (plan.shows_status)
    status_ = std::make_unique<StatusLine>(loop, console_of(Stream::kError).sink(), STDERR_FILENO,
                                           plan.letters);
}

base::OutputSink& Output::silence() {
  if (!silence_) {
    null_ = open_null();
    silence_ = std::make_unique<base::OutputSink>(loop_, null_.get());
  }
  return *silence_;
}

std::shared_ptr<LineFilter> Output::filter(OutputOrigin origin, Stream stream) {
  const OutputOptions& options = plan_.options.output;
  const std::shared_ptr<base::StreamCopy>& file = filtered_[static_cast<int>(stream)];
  if (!file) return nullptr;
  const TagTemplate tag =
      options.tag(origin.local_rank, stream, Destination::kTerminal).value_or(TagTemplate());
  const Console& console = console_of(stream);
  const std::string text = tag.render(console.line_origin(origin, stream), console.now());
  return std::make_shared<LineFilter>(options.filters(stream), text, file);
}

void Output::begin_round() {
  for (auto& stream : streams_) past_streams_.push_back(std::move(stream));
  streams_.clear();
  std::erase_if(past_streams_, [this](const auto& stream) {
    // The stream goes, what it has lost stays counted.
    if (stream->ended()) add_loss(past_loss_, stream->file_loss());
    return stream->ended();
  });
  ++rounds_;
  folder_ = {};
  for (auto& file : filtered_) file.reset();
  out_->end_folding();
  if (error_) error_->end_folding();
}

std::vector<StreamFile> Output::make_files(const LogFolder& folder, int round) {
  try {
    folder_ = folder.make(round);
    make_filtered_files();
  } catch (const base::Error& error) {
    // In the first round nothing is lost yet if the job ends. In a later one lose_files() says why
    // it goes on.
    if (rounds_ == 1) throw;
    lose_files(error);
  }
  std::vector<StreamFile> files;
  for (int i = 0; i < plan_.local_ranks; ++i)
    for (const Stream stream : {Stream::kOut, Stream::kError})
      files.push_back(make_file(i, stream));
  return files;
}

void Output::make_filtered_files() {
  const OutputOptions& options = plan_.options.output;
  for (const Stream stream : {Stream::kOut, Stream::kError}) {
    std::shared_ptr<base::StreamCopy>& file = filtered_[static_cast<int>(stream)];
    if (options.filters(stream).empty() || !folder_.exists()) continue;
    file = std::make_shared<base::StreamCopy>(folder_.make_filtered_file(stream));
    file->on_failure([this](int error_number) { tell_file_loss(strerrordesc_np(error_number)); });
  }
}

// If the output cannot be written, the ranks go on: their work is worth more than their output.
void Output::lose_files(const base::Error& error) {
  folder_ = {};
  if (past_loss_.error_number == 0) past_loss_.error_number = error.error_number();
  tell_file_loss(fmt::format("{}: {}", error.summary(), error.why()));
}

void Output::add_relay(OutputOrigin origin, Stream stream, StreamFile file, base::UniqueFd source) {
  const bool shown = file.plan.console;
  Console& console = console_of(stream);
  base::LineRelayOptions options;
  if (stream == Stream::kError) options.tail_bytes = kTailBytes;
  std::shared_ptr<LineFilter> filter;
  if (shown) {
    console.prepare(origin, stream, options);
    filter = this->filter(origin, stream);
    if (filter) options.observe = [filter](std::string_view bytes) { filter->add(bytes); };
  }
  streams_.push_back(
      std::make_unique<RankStream>(loop_, std::move(source), shown ? console.sink() : silence(),
                                   std::move(options), std::move(file.file), [this, filter] {
                                     if (filter) filter->end();
                                     on_end();
                                   }));
  streams_.back()->on_file_loss(
      [this](int error_number) { tell_file_loss(strerrordesc_np(error_number)); });
}

// Without a file where none can be made.
StreamFile Output::make_file(int local_rank, Stream stream) {
  const OutputOptions& options = plan_.options.output;
  const StreamPlan plan = options.plan(local_rank, stream);
  if (!plan.file) return {plan, {}};
  if (folder_.exists()) {
    try {
      return {plan,
              base::moved_up(folder_.make_stream_file(local_rank, stream), kFirstDescriptorToKeep)};
    } catch (const base::Error& error) {
      if (rounds_ == 1) throw;
      lose_files(error);
    }
  }
  return {{.file = false, .console = options.shows(local_rank)}, {}};
}

void Output::add(OutputOrigin origin, Stream stream, StreamFile file, base::UniqueFd source) {
  if (source) return add_relay(origin, stream, std::move(file), std::move(source));
  streams_.push_back(std::make_unique<RankStream>(std::move(file.file)));
}

void Output::on_end() {
  if (ended()) {  // nobody is left whose lines could be the same
    out_->end_folding();
    if (error_) error_->end_folding();
  }
  if (on_stream_end_) on_stream_end_();
}

void Output::show_status(const StatusFacts& facts) {
  if (status_) status_->show(facts);
}

void Output::hide_status() {
  if (status_) status_->hide();
}

void Output::tell_file_loss(const std::string& why) {
  if (std::exchange(file_loss_told_, true) || !on_file_loss_) return;
  on_file_loss_(file_loss_text(why));
}

bool Output::ended() const {
  const auto all_ended = [](const Streams& streams) {
    return std::all_of(streams.begin(), streams.end(),
                       [](const auto& stream) { return stream->ended(); });
  };
  return all_ended(streams_) && all_ended(past_streams_);
}

bool Output::idle() const {
  return out_->idle() && (!error_ || error_->idle());
}

void Output::on_idle(const base::EventLoop::Callback& callback) {
  out_->sink().on_idle(callback);
  if (error_) error_->sink().on_idle(callback);
}

bool Output::congested() const {
  return out_->sink().congested() || (error_ && error_->sink().congested());
}

void Output::on_congestion(const base::EventLoop::Callback& callback) {
  out_->sink().on_congestion(callback);
  if (error_) error_->sink().on_congestion(callback);
}

void Output::finish_errors() {
  // make_files() and add() have each rank's standard output before its standard error.
  for (std::size_t i = 1; i < streams_.size(); i += 2) streams_[i]->finish();
}

void Output::finish() {
  for (const Streams* streams : {&past_streams_, &streams_})
    for (const auto& stream : *streams) stream->finish();
}

void Output::abandon() {
  hide_status();
  for (Console* const console : {out_.get(), error_.get()}) {
    if (console == nullptr) continue;
    console->end_folding();
    console->sink().abandon();
  }
}

std::string Output::error_tail(int local_rank) {
  const std::size_t index = 2 * static_cast<std::size_t>(local_rank) + 1;
  if (index >= streams_.size()) return "";
  // The rank may be dead while its last lines are still in the pipe.
  streams_[index]->read_waiting();
  return last_lines(streams_[index]->tail(kTailBytes));
}

bool Output::all_in_files() const {
  const OutputOptions& options = plan_.options.output;
  for (int i = 0; i < plan_.local_ranks; ++i)
    for (const Stream stream : {Stream::kOut, Stream::kError})
      if (const StreamPlan plan = options.plan(i, stream); plan.console && !plan.file) return false;
  return file_loss().error_number == 0;
}

std::uint64_t Output::lost_bytes() const {
  const std::uint64_t lost = out_->sink().lost_bytes() + (error_ ? error_->sink().lost_bytes() : 0);
  // What a file has as well is not lost.
  return lost == 0 || all_in_files() ? 0 : lost;
}

int Output::error_number() const {
  const int of_out = out_->sink().error_number();
  return of_out != 0 || !error_ ? of_out : error_->sink().error_number();
}

FileLoss Output::file_loss() const {
  FileLoss sum = past_loss_;
  for (const Streams* streams : {&past_streams_, &streams_})
    for (const auto& stream : *streams) {
      add_loss(sum, stream->file_loss());
      // A rank that has the file itself gets the error of its write, and dtrun does not. So the
      // file system is asked.
      if (sum.error_number == 0 && stream->disk_is_full()) sum.error_number = ENOSPC;
    }
  return sum;
}

OutputState Output::state() {
  OutputState state;
  state.all_out = ended() && idle();
  state.lost_bytes = lost_bytes();
  state.error_number = error_number();
  state.file_loss = file_loss();
  for (std::size_t i = 0; i < streams_.size() / 2; ++i)
    state.error_tails.push_back(error_tail(static_cast<int>(i)));
  return state;
}

}  // namespace dtrun::launcher
