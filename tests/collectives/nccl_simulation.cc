#include "collectives/nccl_simulation.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/reduce_kernel.h"

namespace dtrun::test {

using collectives::DeviceEvent;
using collectives::DeviceStream;
using collectives::nccl::Communicator;
using collectives::nccl::DataType;
using collectives::nccl::Reduction;
using collectives::nccl::Result;
using collectives::nccl::Source;
using collectives::nccl::UniqueId;
using tensors::CombineOp;
using tensors::DType;
using tensors::LocalTensor;

using base::Error;
using base::ErrorCode;

namespace {

DType dtype_of(DataType type) {
  switch (type) {
    case DataType::f16:
      return DType::f16;
    case DataType::bf16:
      return DType::bf16;
    case DataType::f32:
      return DType::f32;
    case DataType::f64:
      return DType::f64;
    case DataType::i32:
      return DType::i32;
    case DataType::i64:
      return DType::i64;
    case DataType::i8:
      return DType::i8;
    default:
      return DType::u8;
  }
}

CombineOp combine_of(Reduction op) {
  switch (op) {
    case Reduction::product:
      return CombineOp::product;
    case Reduction::max:
      return CombineOp::max;
    case Reduction::min:
      return CombineOp::min;
    default:
      return CombineOp::sum;
  }
}

struct SimulatedEvent {
  std::uint64_t recorded = 0;  ///< how often
  std::uint64_t passed = 0;    ///< the last record that the stream has come to
};

enum class Kind { all_reduce, broadcast, reduce, all_gather, reduce_scatter, send, receive };

struct Op {
  Kind kind;
  Source source;
  void* target;
  Reduction reduction;
  int peer;  ///< or root
  std::optional<double> factor = std::nullopt;
  bool done = false;

  std::size_t bytes() const { return source.count * tensors::item_size(dtype_of(source.type)); }
};

/// What stands in a stream. Runs again and again until it says that it is done.
using Task = std::function<bool()>;

struct SimulatedStream {
  std::deque<Task> tasks;
};

struct Clique;

/// One rank's end of a communicator.
struct End {
  std::shared_ptr<Clique> clique;
  int world_rank = 0;
  int rank = 0;
  int busy = 0;
  bool is_made = false;
  bool is_aborted = false;
  bool finalizing = false;
  /// What NCCL is still putting on which stream.
  std::vector<std::pair<SimulatedStream*, Task>> enqueuing;
  // Of a split under way.
  bool splitting = false;
  Communicator* split_slot = nullptr;
  std::optional<int> split_color;
  int split_key = 0;
  std::map<Reduction, double> reductions;  ///< that were made, and not destroyed
};

struct Clique {
  int size = 0;
  std::vector<End*> ends;  ///< by rank; null: has not come
  /// Operations that have reached their stream's head, by rank, in order.
  std::vector<std::deque<Op*>> collectives;
  std::map<std::pair<int, int>, std::deque<Op*>> sends;
  std::map<std::pair<int, int>, std::deque<Op*>> receives;

  explicit Clique(int members)
      : size(members),
        ends(static_cast<std::size_t>(members)),
        collectives(static_cast<std::size_t>(members)) {}
};

End* end_of(Communicator communicator) {
  return reinterpret_cast<End*>(communicator);
}
SimulatedEvent* event_of(DeviceEvent event) {
  return reinterpret_cast<SimulatedEvent*>(event);
}

LocalTensor tensor_of(const void* data, std::size_t count, DataType type) {
  const std::size_t bytes = count * tensors::item_size(dtype_of(type));
  return LocalTensor(tensors::Storage::wrap(const_cast<void*>(data), bytes, tensors::kCpu, [] {}),
                     dtype_of(type), {static_cast<std::int64_t>(count)}, {1});
}

void reduce_into(void* target, const std::vector<const void*>& inputs, std::size_t count,
                 const Op& op) {
  const DType dtype = dtype_of(op.source.type);
  const std::size_t bytes = count * tensors::item_size(dtype);
  std::vector<char> sum(bytes);
  if (count == 0) return;
  tensors::combine_all(combine_of(op.reduction), dtype, sum.data(), inputs.data(),
                       static_cast<int>(inputs.size()), static_cast<std::int64_t>(count));
  if (op.reduction == Reduction::average)
    tensors::divide(dtype, sum.data(), static_cast<std::int64_t>(count),
                    static_cast<std::int64_t>(inputs.size()));
  std::memcpy(target, sum.data(), bytes);
}

/// All ranks are at it: moves the bytes. False: they are not at the same, and hang, as NCCL would.
bool run_collective(const std::vector<Op*>& ops) {
  const Op& first = *ops.front();
  for (const Op* op : ops)
    if (op->kind != first.kind || op->source.count != first.source.count ||
        op->source.type != first.source.type || op->peer != first.peer)
      return false;
  std::vector<const void*> inputs;
  std::list<LocalTensor> products;
  for (const Op* op : ops) {
    const std::size_t parts = op->kind == Kind::reduce_scatter ? ops.size() : 1;
    const Source& from = op->source;
    if (op->factor)
      products.push_back(
          tensors::mul(tensor_of(from.data, from.count * parts, from.type), *op->factor));
    inputs.push_back(op->factor ? products.back().data() : from.data);
  }
  // Inputs may be outputs of the same call: results are put down once all are computed.
  std::vector<std::vector<char>> results(ops.size());
  const std::size_t part = first.bytes();
  for (std::size_t rank = 0; rank < ops.size(); ++rank) {
    std::vector<char>& result = results[rank];
    switch (first.kind) {
      case Kind::all_reduce:
        result.resize(part);
        reduce_into(result.data(), inputs, first.source.count, first);
        break;
      case Kind::reduce:
        if (static_cast<int>(rank) != first.peer) break;
        result.resize(part);
        reduce_into(result.data(), inputs, first.source.count, first);
        break;
      case Kind::broadcast: {
        const char* root = static_cast<const char*>(inputs[static_cast<std::size_t>(first.peer)]);
        result.assign(root, root + part);
        break;
      }
      case Kind::all_gather:
        for (const void* input : inputs)
          result.insert(result.end(), static_cast<const char*>(input),
                        static_cast<const char*>(input) + part);
        break;
      case Kind::reduce_scatter: {
        std::vector<const void*> parts;
        for (const void* input : inputs)
          parts.push_back(static_cast<const char*>(input) + rank * part);
        result.resize(part);
        reduce_into(result.data(), parts, first.source.count, first);
        break;
      }
      default:
        return false;
    }
  }
  for (std::size_t rank = 0; rank < ops.size(); ++rank) {
    if (!results[rank].empty())
      std::memcpy(ops[rank]->target, results[rank].data(), results[rank].size());
    ops[rank]->done = true;
  }
  return true;
}

void run_messages(Clique& clique) {
  for (auto& [pair, sends] : clique.sends) {
    std::deque<Op*>& receives = clique.receives[pair];
    while (!sends.empty() && !receives.empty()) {
      Op& send = *sends.front();
      Op& receive = *receives.front();
      if (send.bytes() != receive.bytes()) break;
      std::memcpy(receive.target, send.source.data, send.bytes());
      send.done = receive.done = true;
      sends.pop_front();
      receives.pop_front();
    }
  }
}

void run_arrived(Clique& clique) {
  run_messages(clique);
  for (;;) {
    std::vector<Op*> ops;
    for (std::deque<Op*>& queue : clique.collectives)
      if (!queue.empty()) ops.push_back(queue.front());
    if (ops.size() != clique.collectives.size() || !run_collective(ops)) return;
    for (std::deque<Op*>& queue : clique.collectives) queue.pop_front();
  }
}

}  // namespace

struct NcclSimulation::State {
  explicit State(Options given) : options(given) {}

  const Options options;
  std::mutex mutex;
  bool frozen = false;
  std::vector<std::string> violations;
  std::map<int, std::vector<std::string>> calls;
  std::map<int, Result> broken;
  std::map<std::string, std::shared_ptr<Clique>> meetings;
  std::vector<std::unique_ptr<End>> ends;
  std::vector<std::unique_ptr<SimulatedStream>> streams;
  std::vector<std::unique_ptr<SimulatedEvent>> events;
  std::map<int, SimulatedStream*> default_streams;
  int ids = 0;

  void note(int rank, std::string call) { calls[rank].push_back(std::move(call)); }
  void violate(int rank, const std::string& what) {
    violations.push_back("rank " + std::to_string(rank) + ": " + what);
  }

  SimulatedStream* make_stream() {
    streams.push_back(std::make_unique<SimulatedStream>());
    return streams.back().get();
  }
  /// The null stream is the rank's default one.
  SimulatedStream& stream(int rank, DeviceStream handle) {
    if (handle != nullptr) return *reinterpret_cast<SimulatedStream*>(handle);
    SimulatedStream*& mine = default_streams[rank];
    if (mine == nullptr) mine = make_stream();
    return *mine;
  }

  /// Runs whatever can run on any stream.
  void run() {
    if (frozen) return;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = 0; i < streams.size(); ++i)
        while (!streams[i]->tasks.empty() && streams[i]->tasks.front()()) {
          streams[i]->tasks.pop_front();
          moved = true;
        }
    }
  }
};

namespace {

class SimulatedDevice : public collectives::DeviceApi {
 public:
  SimulatedDevice(std::shared_ptr<NcclSimulation::State> state, int rank)
      : state_(std::move(state)), rank_(rank) {}

  int device_count() override { return state_->options.devices; }
  int current_device() override { return 0; }
  void set_current_device(int) override {}
  void restore_device(int) noexcept override {}
  std::string bus_id(int device) override {
    return "gpu " + std::to_string(state_->options.one_gpu ? 0 : rank_) + "." +
           std::to_string(device);
  }
  DeviceStream current_stream(int) override { return nullptr; }
  void run_on(int, DeviceStream stream, std::function<void()> work) override {
    if (state_->options.runs_at_once) return work();
    push(stream, [work = std::move(work)] {
      work();
      return true;
    });
  }
  DeviceStream make_stream() override {
    const std::scoped_lock lock(state_->mutex);
    if (!state_->options.has_streams) throw Error(ErrorCode::kSystem, "no simulated stream");
    return reinterpret_cast<DeviceStream>(state_->make_stream());
  }
  // Its tasks may not be done: kept until the end.
  void destroy_stream(DeviceStream) noexcept override {}
  DeviceEvent make_event() override {
    const std::scoped_lock lock(state_->mutex);
    state_->events.push_back(std::make_unique<SimulatedEvent>());
    return reinterpret_cast<DeviceEvent>(state_->events.back().get());
  }
  void destroy_event(DeviceEvent) noexcept override {}

  void record(DeviceEvent handle, DeviceStream stream) override {
    const std::scoped_lock lock(state_->mutex);
    state_->note(rank_, "record");
    SimulatedStream& queue = state_->stream(rank_, stream);
    for (const auto& end : state_->ends)
      for (const auto& [busy, task] : end->enqueuing)
        if (busy == &queue) state_->violate(rank_, "an event was recorded before NCCL was through");
    SimulatedEvent* const event = event_of(handle);
    const std::uint64_t number = ++event->recorded;
    queue.tasks.push_back([event, number] {
      event->passed = number;
      return true;
    });
    state_->run();
  }
  bool has_passed(DeviceEvent event) override {
    const std::scoped_lock lock(state_->mutex);
    state_->run();
    return event_of(event)->passed >= event_of(event)->recorded;
  }
  void synchronize(DeviceEvent event) override {
    {
      const std::scoped_lock lock(state_->mutex);
      state_->note(rank_, "synchronize");
    }
    while (!has_passed(event)) std::this_thread::yield();
  }
  void make_wait(DeviceStream stream, DeviceEvent handle) override {
    const std::scoped_lock lock(state_->mutex);
    state_->note(rank_, "make_wait");
    SimulatedEvent* const event = event_of(handle);
    const std::uint64_t number = event->recorded;
    if (number == 0) state_->violate(rank_, "a stream waits for an event before it is recorded");
    state_->stream(rank_, stream).tasks.push_back([event, number] {
      return event->passed >= number;
    });
    state_->run();
  }
  void copy(void* target, const void* source, std::size_t bytes, DeviceStream stream) override {
    push(stream, [=] {
      if (bytes > 0) std::memmove(target, source, bytes);
      return true;
    });
  }
  std::shared_ptr<void> allocate(std::size_t bytes, int) override { return wrap(bytes); }
  std::shared_ptr<void> allocate_pinned(std::size_t bytes) override { return wrap(bytes); }

 private:
  static std::shared_ptr<void> wrap(std::size_t bytes) {
    auto memory = std::make_shared<std::vector<char>>(bytes + 1);
    return {memory, memory->data()};
  }
  void push(DeviceStream stream, Task task) {
    const std::scoped_lock lock(state_->mutex);
    state_->stream(rank_, stream).tasks.push_back(std::move(task));
    state_->run();
  }
  const std::shared_ptr<NcclSimulation::State> state_;
  const int rank_;
};

class SimulatedNccl : public collectives::nccl::NcclApi {
 public:
  SimulatedNccl(std::shared_ptr<NcclSimulation::State> state, int rank)
      : state_(std::move(state)), rank_(rank) {}

  int version() override { return 22809; }
  std::string error_text(Result result) override {
    return "simulated error " + std::to_string(static_cast<int>(result));
  }
  std::string last_error(Communicator) override { return ""; }

  Result unique_id(UniqueId& id) override {
    const std::scoped_lock lock(state_->mutex);
    state_->note(rank_, "unique_id");
    std::memset(&id, 0, sizeof(id));
    std::snprintf(id.bytes, sizeof(id.bytes), "id %d", ++state_->ids);
    return Result::success;
  }
  Result init_rank(Communicator* made, int size, const UniqueId& id, int rank) override {
    const std::scoped_lock lock(state_->mutex);
    state_->note(rank_, "init_rank");
    std::shared_ptr<Clique>& clique = state_->meetings[id.bytes];
    if (!clique) clique = std::make_shared<Clique>(size);
    *made = reinterpret_cast<Communicator>(join(clique, rank));
    return Result::in_progress;
  }
  Result split(Communicator parent, std::optional<int> color, int key,
               Communicator* made) override {
    const std::scoped_lock lock(state_->mutex);
    End& end = begin_call(parent, "split");
    end.splitting = true;
    end.split_slot = made;
    end.split_color = color;
    end.split_key = key;
    return Result::in_progress;
  }
  Result async_error(Communicator communicator, Result& state) override {
    const std::scoped_lock lock(state_->mutex);
    End& end = *end_of(communicator);
    if (end.is_aborted) state_->violate(rank_, "a question after abort");
    const auto broken = state_->broken.find(rank_);
    state = broken != state_->broken.end() ? broken->second : state_of(end);
    return Result::success;
  }
  Result finalize(Communicator communicator) override {
    const std::scoped_lock lock(state_->mutex);
    begin_call(communicator, "finalize").finalizing = true;
    return Result::in_progress;
  }
  Result destroy(Communicator communicator) override { return close(communicator, "destroy"); }
  Result abort(Communicator communicator) override { return close(communicator, "abort"); }

  Result make_premul_sum(Reduction* made, const void* factor, DataType type,
                         Communicator communicator) override {
    const std::scoped_lock lock(state_->mutex);
    state_->note(rank_, "make_premul_sum");
    *made = static_cast<Reduction>(++made_);
    end_of(communicator)->reductions[*made] = tensor_of(factor, 1, type).item();
    return Result::success;
  }
  Result destroy_reduction(Reduction made, Communicator communicator) override {
    const std::scoped_lock lock(state_->mutex);
    state_->note(rank_, "destroy_reduction");
    End& end = *end_of(communicator);
    if (!end.enqueuing.empty()) state_->violate(rank_, "a reduction destroyed while it was used");
    if (end.reductions.erase(made) == 0) state_->violate(rank_, "no such reduction to destroy");
    return Result::success;
  }

  Result group_start() override {
    const std::scoped_lock lock(state_->mutex);
    if (std::exchange(in_group_[std::this_thread::get_id()], true))
      state_->violate(rank_, "a group in a group");
    return Result::success;
  }
  Result group_end() override {
    const std::scoped_lock lock(state_->mutex);
    if (!std::exchange(in_group_[std::this_thread::get_id()], false))
      state_->violate(rank_, "the end of no group");
    flush();
    return Result::in_progress;
  }
  Result all_reduce(Source source, void* target, Reduction op, Communicator communicator,
                    DeviceStream stream) override {
    return add("all_reduce", {Kind::all_reduce, source, target, op, -1}, communicator, stream);
  }
  Result broadcast(Source source, void* target, int root, Communicator communicator,
                   DeviceStream stream) override {
    return add("broadcast", {Kind::broadcast, source, target, Reduction::sum, root}, communicator,
               stream);
  }
  Result reduce(Source source, void* target, Reduction op, int root, Communicator communicator,
                DeviceStream stream) override {
    return add("reduce", {Kind::reduce, source, target, op, root}, communicator, stream);
  }
  Result all_gather(Source source, void* target, Communicator communicator,
                    DeviceStream stream) override {
    return add("all_gather", {Kind::all_gather, source, target, Reduction::sum, -1}, communicator,
               stream);
  }
  Result reduce_scatter(Source source, void* target, Reduction op, Communicator communicator,
                        DeviceStream stream) override {
    return add("reduce_scatter", {Kind::reduce_scatter, source, target, op, -1}, communicator,
               stream);
  }
  Result send(Source source, int peer, Communicator communicator, DeviceStream stream) override {
    return add("send", {Kind::send, source, nullptr, Reduction::sum, peer}, communicator, stream);
  }
  Result receive(void* target, std::size_t count, DataType type, int peer,
                 Communicator communicator, DeviceStream stream) override {
    return add("receive", {Kind::receive, {nullptr, count, type}, target, Reduction::sum, peer},
               communicator, stream);
  }

 private:
  struct Pending {
    End* end;
    SimulatedStream* stream;
    std::vector<Op> ops;
  };

  End* join(const std::shared_ptr<Clique>& clique, int rank) {
    state_->ends.push_back(std::make_unique<End>());
    End* const end = state_->ends.back().get();
    end->clique = clique;
    end->world_rank = rank_;
    end->rank = rank;
    end->busy = state_->options.busy_polls;
    clique->ends[static_cast<std::size_t>(rank)] = end;
    return end;
  }

  /// A call that NCCL must be asked after.
  End& begin_call(Communicator communicator, const std::string& name) {
    state_->note(rank_, name);
    End& end = *end_of(communicator);
    if (end.is_aborted) state_->violate(rank_, name + " after abort");
    if (!end.is_made || end.busy > 0 || end.splitting || end.finalizing)
      state_->violate(rank_, name + " while NCCL was at something");
    end.busy = state_->options.busy_polls;
    return end;
  }

  static bool all_have_come(const Clique& clique) {
    return std::none_of(clique.ends.begin(), clique.ends.end(),
                        [](const End* end) { return end == nullptr; });
  }

  Result state_of(End& end) {
    if (!end.is_made) {
      if (!state_->options.init_ends || !all_have_come(*end.clique)) return Result::in_progress;
      end.is_made = true;
    }
    if (end.busy > 0 && --end.busy > 0) return Result::in_progress;
    for (auto& [stream, task] : std::exchange(end.enqueuing, {}))
      stream->tasks.push_back(std::move(task));
    state_->run();
    if (end.splitting && !finish_split(*end.clique)) return Result::in_progress;
    if (end.finalizing)
      for (const End* other : end.clique->ends)
        if (!other->finalizing && !other->is_aborted) return Result::in_progress;
    return Result::success;
  }

  bool finish_split(Clique& parent) {
    for (const End* end : parent.ends)
      if (!end->splitting) return false;
    std::map<int, std::vector<End*>> colors;
    for (End* end : parent.ends)
      if (end->split_color) colors[*end->split_color].push_back(end);
    for (auto& [color, members] : colors) {
      std::sort(members.begin(), members.end(),
                [](const End* a, const End* b) { return a->split_key < b->split_key; });
      const auto clique = std::make_shared<Clique>(static_cast<int>(members.size()));
      for (std::size_t rank = 0; rank < members.size(); ++rank) {
        End* const child = join(clique, static_cast<int>(rank));
        child->world_rank = members[rank]->world_rank;
        *members[rank]->split_slot = reinterpret_cast<Communicator>(child);
      }
    }
    for (End* end : parent.ends) end->splitting = false;
    return true;
  }

  Result close(Communicator communicator, const std::string& name) {
    const std::scoped_lock lock(state_->mutex);
    state_->note(rank_, name);
    End& end = *end_of(communicator);
    if (std::exchange(end.is_aborted, true)) state_->violate(rank_, name + " twice");
    if (name == "destroy" && !end.reductions.empty())
      state_->violate(rank_, "a communicator destroyed with reductions of its own");
    if (name == "destroy" && !end.finalizing) state_->violate(rank_, "destroy before finalize");
    end.enqueuing.clear();
    withdraw(end);
    state_->run();
    return Result::success;
  }

  /// What it has not done is never done: its peers hang.
  static void withdraw(const End& end) {
    Clique& clique = *end.clique;
    clique.collectives[static_cast<std::size_t>(end.rank)].clear();
    for (auto& [pair, sends] : clique.sends)
      if (pair.first == end.rank) sends.clear();
    for (auto& [pair, receives] : clique.receives)
      if (pair.second == end.rank) receives.clear();
  }

  Result add(const std::string& name, Op op, Communicator communicator, DeviceStream stream) {
    const std::scoped_lock lock(state_->mutex);
    Pending& pending = pending_[std::this_thread::get_id()];
    if (pending.ops.empty()) {
      pending.end = &begin_call(communicator, name);
      pending.stream = &state_->stream(rank_, stream);
    } else {
      state_->note(rank_, name);
    }
    if (op.reduction > Reduction::average) {
      const std::map<Reduction, double>& made = pending.end->reductions;
      if (const auto found = made.find(op.reduction); found != made.end())
        op.factor = found->second;
      else
        state_->violate(rank_, name + " by a reduction that there is not");
    }
    pending.ops.push_back(op);
    if (!in_group_[std::this_thread::get_id()]) flush();
    return Result::in_progress;
  }

  void flush() {
    const auto found = pending_.find(std::this_thread::get_id());
    if (found == pending_.end() || found->second.ops.empty()) return;
    Pending pending = std::move(found->second);
    pending_.erase(found);
    auto ops = std::make_shared<std::vector<Op>>(std::move(pending.ops));
    End* const end = pending.end;
    auto arrived = std::make_shared<bool>(false);
    pending.end->enqueuing.emplace_back(pending.stream, [end, ops, arrived] {
      if (end->is_aborted) return true;
      if (!std::exchange(*arrived, true)) arrive(*end, *ops);
      run_arrived(*end->clique);
      return std::all_of(ops->begin(), ops->end(), [](const Op& op) { return op.done; });
    });
  }

  static void arrive(End& end, std::vector<Op>& ops) {
    Clique& clique = *end.clique;
    for (Op& op : ops) {
      if (op.kind == Kind::send)
        clique.sends[{end.rank, op.peer}].push_back(&op);
      else if (op.kind == Kind::receive)
        clique.receives[{op.peer, end.rank}].push_back(&op);
      else
        clique.collectives[static_cast<std::size_t>(end.rank)].push_back(&op);
    }
  }

  const std::shared_ptr<NcclSimulation::State> state_;
  const int rank_;
  int made_ = static_cast<int>(Reduction::average);
  std::map<std::thread::id, bool> in_group_;
  std::map<std::thread::id, Pending> pending_;
};

}  // namespace

NcclSimulation::NcclSimulation(Options options) : state_(std::make_shared<State>(options)) {}
NcclSimulation::~NcclSimulation() = default;

std::shared_ptr<collectives::DeviceApi> NcclSimulation::device_of(int rank) {
  return std::make_shared<SimulatedDevice>(state_, rank);
}

std::shared_ptr<collectives::nccl::NcclApi> NcclSimulation::nccl_of(int rank) {
  return std::make_shared<SimulatedNccl>(state_, rank);
}

void NcclSimulation::freeze(bool frozen) {
  const std::scoped_lock lock(state_->mutex);
  state_->frozen = frozen;
  state_->run();
}

void NcclSimulation::break_rank(int rank, Result result) {
  const std::scoped_lock lock(state_->mutex);
  state_->broken[rank] = result;
}

std::vector<std::string> NcclSimulation::violations() {
  const std::scoped_lock lock(state_->mutex);
  return state_->violations;
}

std::vector<std::string> NcclSimulation::calls(int rank) {
  const std::scoped_lock lock(state_->mutex);
  return state_->calls[rank];
}

int NcclSimulation::count(int rank, const std::string& call) {
  const std::vector<std::string> all = calls(rank);
  return static_cast<int>(std::count(all.begin(), all.end(), call));
}

}  // namespace dtrun::test
