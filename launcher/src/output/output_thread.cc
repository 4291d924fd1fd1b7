#include "output/output_thread.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <cerrno>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <utility>

#include "dtrun/base/detached_thread.h"
#include "dtrun/base/error.h"
#include "dtrun/base/json.h"
#include "dtrun/base/socket.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using std::chrono::seconds;

// How long a file system may take to make the files of a round.
constexpr auto kFilePatience = seconds(10);
// For what is kept in memory; a thread that does not answer by then is in a write that hangs.
constexpr auto kPatience = seconds(1);

base::UniqueFd second_descriptor(const base::UniqueFd& file) {
  base::UniqueFd second(::fcntl(file.get(), F_DUPFD_CLOEXEC, 3));
  if (!second) throw base::system_error("duplicate a descriptor", "raise the limit of open files");
  return second;
}

}  // namespace

// Lives as long as one of the two sides does. `output` and `drain` are the thread's.
struct OutputThread::Shared {
  explicit Shared(base::EventLoop& guards_loop) : guard(&guards_loop) {}

  void post_to_guard(base::EventLoop::Callback callback) {
    const std::lock_guard lock(mutex);
    if (guard != nullptr) guard->post(std::move(callback));
  }

  base::EventLoop loop;
  Output* output = nullptr;
  std::unique_ptr<OutputDrain> drain;
  std::mutex mutex;
  base::EventLoop* guard;  // none: it is gone
};

struct OutputThread::Request {
  enum class State { kWaiting, kBegun, kDone };

  std::mutex mutex;
  std::condition_variable changed;
  State state = State::kWaiting;
  bool given_up = false;
  std::exception_ptr error;
};

OutputThread::OutputThread(base::EventLoop& loop, const LaunchPlan& plan)
    : plan_(plan), shared_(std::make_shared<Shared>(loop)) {
  base::start_detached_thread([shared = shared_, &plan] { run(shared, plan); });
}

// The thread is left behind, whether it hangs or not: the process is about to end.
OutputThread::~OutputThread() {
  shared_->loop.stop();
  const std::lock_guard lock(shared_->mutex);
  shared_->guard = nullptr;
}

void OutputThread::run(const std::shared_ptr<Shared>& shared, const LaunchPlan& plan) {
  try {
    Output output(shared->loop, plan);
    shared->output = &output;
    shared->loop.run();
    shared->drain.reset();
  } catch (...) {
    shared->drain.reset();
    shared->post_to_guard([error = std::current_exception()] { std::rethrow_exception(error); });
  }
  shared->output = nullptr;
}

void OutputThread::post(Work work) {
  shared_->loop.post([shared = shared_.get(), work = std::move(work)] { work(*shared->output); });
}

bool OutputThread::ask(Deadline::Duration patience, Work work) {
  post_added();
  using State = Request::State;
  if (unanswered_) {  // it hangs, or has just gone on
    const std::lock_guard lock(unanswered_->mutex);
    if (unanswered_->state != State::kDone) return false;
  }
  const auto request = std::make_shared<Request>();
  post([request, work = std::move(work)](Output& output) {
    {
      const std::lock_guard lock(request->mutex);
      request->state = request->given_up ? State::kDone : State::kBegun;
      if (request->given_up) return;
    }
    try {
      work(output);
    } catch (...) {
      request->error = std::current_exception();
    }
    const std::lock_guard lock(request->mutex);
    request->state = State::kDone;
    request->changed.notify_all();
  });
  std::unique_lock lock(request->mutex);
  request->changed.wait_until(lock, Deadline::after(patience).when(),
                              [&] { return request->state == State::kDone; });
  request->given_up = request->state != State::kDone;
  unanswered_ = request->given_up ? request : nullptr;
  if (!request->given_up && request->error) std::rethrow_exception(request->error);
  return !request->given_up;
}

std::vector<StreamFile> OutputThread::make_files(const LogFolder& folder, int round) {
  const bool first = rounds_++ == 0;
  if (folder.kept()) {
    const auto files = std::make_shared<std::vector<StreamFile>>();
    const bool made = ask(kFilePatience, [folder, round, files](Output& output) {
      *files = output.make_files(folder, round);
    });
    if (made) return std::move(*files);
    const std::string why = fmt::format("the file system of {} has not answered within {}",
                                        folder.path(), base::format_duration(kFilePatience));
    if (first)
      throw base::Error(base::ErrorCode::kTimeout, "cannot make the ranks' log files", why,
                        "name a folder elsewhere with --log_dir");
    lose_files(why);
  } else {
    private_folder_ = folder.make_private();
  }
  std::vector<StreamFile> files;
  const OutputOptions& options = plan_.options.output;
  for (int i = 0; i < plan_.local_ranks; ++i)
    for (const Stream stream : {Stream::kOut, Stream::kError}) {
      StreamPlan plan = options.plan(i, stream);
      if (plan.file) plan = {.file = false, .console = options.shows(i)};
      files.push_back({plan, {}});
    }
  return files;
}

void OutputThread::lose_files(const std::string& why) {
  if (std::exchange(files_lost_, true) || !on_file_loss_) return;
  on_file_loss_(file_loss_text(why));
}

void OutputThread::begin_round(const LogFolder& folder, int round) {
  post_added();
  post([](Output& output) { output.begin_round(); });
  files_ = make_files(folder, round);
}

base::UniqueFd OutputThread::add_stream(OutputOrigin origin, Stream stream) {
  const std::size_t index =
      2 * static_cast<std::size_t>(origin.local_rank) + (stream == Stream::kError ? 1 : 0);
  StreamFile& of_stream = files_[index];
  const StreamPlan plan = of_stream.plan;
  base::UniqueFd of_rank, source;
  // Hidden output is read as well if the failure report may need its last lines.
  if (plan.console || (!plan.file && stream == Stream::kError)) {
    base::Pipe pipe = base::make_pipe();
    of_rank = std::move(pipe.write_end);
    source = base::moved_up(std::move(pipe.read_end), kFirstDescriptorToKeep);
  } else {
    of_rank = plan.file ? second_descriptor(of_stream.file) : open_null();
  }
  added_.push_back({origin, stream, std::move(of_stream), std::move(source)});
  return of_rank;
}

RankEnds OutputThread::add(OutputOrigin origin) {
  any_streams_ = true;
  RankEnds ends;
  ends.out = add_stream(origin, Stream::kOut);
  ends.err = add_stream(origin, Stream::kError);
  if (origin.local_rank == plan_.local_ranks - 1) post_added();
  return ends;
}

// All streams are added at once: a stream that is alone on its sink passes on lines that have not
// ended.
void OutputThread::post_added() {
  if (added_.empty()) return;
  // Callbacks can be copied, descriptors cannot.
  const auto added = std::make_shared<std::vector<Added>>(std::move(added_));
  added_.clear();
  post([added](Output& output) {
    for (Added& one : *added)
      output.add(one.origin, one.stream, std::move(one.file), std::move(one.source));
  });
}

void OutputThread::on_file_loss(std::function<void(const std::string&)> callback) {
  on_file_loss_ = callback;
  post([shared = shared_.get(), callback = std::move(callback)](Output& output) {
    output.on_file_loss([shared, callback](const std::string& text) {
      shared->post_to_guard([callback, text] { callback(text); });
    });
  });
}

void OutputThread::on_reader_gone(base::EventLoop::Callback callback) {
  post([shared = shared_.get(), callback = std::move(callback)](Output& output) {
    output.on_reader_gone([shared, callback] { shared->post_to_guard(callback); });
  });
}

void OutputThread::end_readers(int exit_code) {
  ask(kPatience, [exit_code](Output& output) { output.readers().end(exit_code); });
}

void OutputThread::remove(const LogFolder& folder) {
  post([folder](Output&) { folder.remove(); });
}

void OutputThread::write_file(const std::string& path, std::function<std::string()> content,
                              std::function<void(const std::string&)> on_end) {
  post([shared = shared_.get(), path, content = std::move(content),
        on_end = std::move(on_end)](Output&) {
    std::string failure;
    try {
      std::filesystem::create_directories(std::filesystem::path(path).parent_path());
      base::write_file_atomically(path, content());
    } catch (const std::exception& error) {
      failure = error.what();
    }
    shared->post_to_guard([on_end, failure] { on_end(failure); });
  });
}

void OutputThread::show_status(const StatusFacts& facts) {
  if (!plan_.shows_status) return;
  post([facts](Output& output) { output.show_status(facts); });
}

void OutputThread::hide_status() {
  post([](Output& output) { output.hide_status(); });
}

void OutputThread::hide_status_now() {
  if (plan_.shows_status) ask(kPatience, [](Output& output) { output.hide_status(); });
}

std::string OutputThread::error_tail(int local_rank) {
  const auto tail = std::make_shared<std::string>();
  const bool told =
      ask(kPatience, [tail, local_rank](Output& output) { *tail = output.error_tail(local_rank); });
  return told ? *tail : "";
}

OutputState OutputThread::state() {
  const auto state = std::make_shared<OutputState>();
  OutputState result;
  result.all_out = !any_streams_ || given_up_;
  if (!any_streams_) return result;
  if (ask(kPatience, [state](Output& output) { *state = output.state(); })) {
    result = std::move(*state);
  } else {
    result.error_number = ETIMEDOUT;
    if (plan_.options.output.any_files()) result.file_loss.error_number = ETIMEDOUT;
  }
  if (files_lost_ && result.file_loss.error_number == 0) result.file_loss.error_number = ETIMEDOUT;
  return result;
}

void OutputThread::drain(Deadline::Duration grace, OutputDrain::Patience patience,
                         base::EventLoop::Callback on_end) {
  if (!any_streams_) return shared_->post_to_guard(std::move(on_end));
  post_added();  // not all ranks could be started
  post([shared = shared_.get(), grace, patience, on_end = std::move(on_end)](Output& output) {
    shared->drain.reset();
    shared->drain = std::make_unique<OutputDrain>(shared->loop, output);
    shared->drain->set_patience(patience);
    shared->drain->start(grace, [shared, on_end] { shared->post_to_guard(on_end); });
  });
}

void OutputThread::set_patience(OutputDrain::Patience patience) {
  post([shared = shared_.get(), patience](Output&) {
    if (shared->drain) shared->drain->set_patience(patience);
  });
}

void OutputThread::end_drain() {
  post([shared = shared_.get()](Output&) { shared->drain.reset(); });
}

}  // namespace dtrun::launcher
