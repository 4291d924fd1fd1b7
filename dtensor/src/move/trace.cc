#include "dtrun/dtensor/move/trace.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <utility>

#include "dtrun/base/json.h"
#include "dtrun/base/trace_file.h"
#include "dtrun/collectives/call_observer.h"
#include "dtrun/tensor/cuda.h"
#include "dtrun/tensor/ops.h"
#include "move/cause.h"
#include "move/section.h"
#include "move/span.h"
#include "move/trace_text.h"

namespace dtrun::dtensor {
namespace {

using collectives::ProcessGroup;
using tensors::LocalTensor;

double microseconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

std::string category_of(SpanObserver::Kind kind) {
  switch (kind) {
    case SpanObserver::Kind::op:
      return "op";
    case SpanObserver::Kind::backward:
      return "backward";
    case SpanObserver::Kind::module:
      return "module";
    case SpanObserver::Kind::step:
      return "step";
    case SpanObserver::Kind::wait:
      break;
  }
  return "wait";
}

std::string here() {
  const Section* const section = StandingSection::innermost();
  return section == nullptr ? "" : section->path;
}

LocalTensor letters_of(const std::string& text) {
  const LocalTensor all =
      tensors::zeros({static_cast<std::int64_t>(text.size())}, {tensors::DType::u8});
  std::memcpy(all.data(), text.data(), text.size());
  return all;
}

/// Of all ranks, on the first one.
std::vector<std::string> collected(const std::string& text, const ProcessGroup& group,
                                   const ProcessGroup::Site& site) {
  // NCCL has tensors of GPUs only.
  const tensors::Device device =
      group.serves(tensors::DeviceType::cpu)
          ? tensors::kCpu
          : tensors::Device{tensors::DeviceType::cuda, tensors::cuda::current_device()};
  const LocalTensor size =
      tensors::full({1}, static_cast<std::int64_t>(text.size()), {tensors::DType::i64, device});
  const LocalTensor sizes = tensors::zeros({group.size()}, {tensors::DType::i64, device});
  group.all_gather_into_tensor(sizes, size, {}, site);
  std::vector<LocalTensor> all;
  if (group.rank() == 0) {
    for (const std::int64_t letters : sizes.to_vector_i64())
      all.push_back(tensors::zeros({letters}, {tensors::DType::u8, device}));
  }
  group.gather(letters_of(text).to(device), all, 0, {}, site);
  std::vector<std::string> texts;
  for (const LocalTensor& gathered : all) {
    const LocalTensor letters = gathered.to(tensors::kCpu);
    texts.emplace_back(letters.data_as<char>(), static_cast<std::size_t>(letters.numel()));
  }
  return texts;
}

}  // namespace

class Trace::Recorder : public collectives::CallObserver, public SpanObserver {
 private:
  /// What has ended. Communications end on any thread, maybe after the trace has gone.
  struct Book {
    void add(TraceEvent event) {
      event.end = microseconds_now();
      const std::lock_guard lock(mutex);
      events.push_back(std::move(event));
    }
    std::mutex mutex;
    std::vector<TraceEvent> events;
  };

 public:
  void begin(Kind kind, std::string_view name) override {
    TraceEvent& event = open_.emplace_back();
    event.name = kind == Kind::backward ? std::string(name) + ", backward" : std::string(name);
    event.category = category_of(kind);
    event.section = here();
    event.begin = microseconds_now();
  }
  void end() override {
    if (open_.empty()) return;
    book_->add(std::move(open_.back()));
    open_.pop_back();
  }

  void on_call(const collectives::ObservedCall&) override {}
  std::function<void()> at_end(const collectives::ObservedCall& call) override {
    const Cause* const cause = Cause::outermost();
    TraceEvent event;
    event.name = collectives::op_kind_name(call.kind);
    event.category = "communication";
    event.section = here();
    event.bytes = call.bytes_sent;
    event.ranks = call.ranks;
    event.blocks = !call.async;
    if (cause != nullptr) event.cause = cause->to_string();
    event.begin = microseconds_now();
    return [book = book_, event = std::move(event)] { book->add(event); };
  }

  std::vector<TraceEvent> events() const {
    const std::lock_guard lock(book_->mutex);
    std::vector<TraceEvent> all = book_->events;
    // What encloses comes first.
    std::sort(all.begin(), all.end(), [](const TraceEvent& a, const TraceEvent& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    return all;
  }

 private:
  const std::shared_ptr<Book> book_ = std::make_shared<Book>();
  std::vector<TraceEvent> open_;
};

constinit thread_local SpanObserver* SpanObserver::innermost_ = nullptr;

Trace::Trace() : recorder_(std::make_unique<Recorder>()) {}
Trace::~Trace() = default;

std::vector<TraceEvent> Trace::events() const {
  return recorder_->events();
}

double Trace::hidden_share() const {
  const Overlap overlap = overlap_of(events());
  return overlap.all > 0 ? overlap.hidden / overlap.all : 0;
}

std::string Trace::to_json(int rank) const {
  return base::trace_file({trace_lines(events(), rank)});
}

void Trace::write(const std::string& path, const ProcessGroup& group,
                  ProcessGroup::Site site) const {
  const int rank = group.global_ranks()[static_cast<std::size_t>(group.rank())];
  const std::vector<std::string> all = collected(trace_lines(events(), rank), group, site);
  if (group.rank() == 0) base::write_file_atomically(path, base::trace_file(all));
}

}  // namespace dtrun::dtensor
