#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "collectives/simulation_state.h"

namespace dtrun::test {

using collectives::DeviceStream;
using collectives::nccl::Communicator;
using collectives::nccl::DataType;
using collectives::nccl::Reduction;
using collectives::nccl::Result;
using collectives::nccl::Source;
using collectives::nccl::UniqueId;
using simulated::Clique;
using simulated::End;
using simulated::Kind;
using simulated::Op;
using simulated::Stream;
using simulated::Task;

namespace {

End* end_of(Communicator communicator) {
  return reinterpret_cast<End*>(communicator);
}

class SimulatedNccl : public collectives::nccl::NcclApi {
 public:
  SimulatedNccl(std::shared_ptr<NcclSimulation::State> state, int rank)
      : state_(std::move(state)), rank_(rank) {}

  int version() override { return state_->options.version; }
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
    const int device = state_->current_device(rank_);
    if (state_->runs_kernels(rank_, device)) ++state_->made_beside_kernels[rank_];
    *made = reinterpret_cast<Communicator>(join(clique, rank, rank_, device));
    return Result::in_progress;
  }
  Result split(Communicator parent, std::optional<int> color, int key,
               Communicator* made) override {
    const std::scoped_lock lock(state_->mutex);
    End& end = begin_call(parent, "split");
    // NCCL's manual: it might deadlock.
    if (end.kernels > 0) state_->violate(rank_, "a split of a communicator whose kernels run");
    if (state_->runs_kernels(rank_, end.device)) ++state_->made_beside_kernels[rank_];
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
  Result destroy(Communicator communicator) override {
    Lock lock(state_->mutex);
    End& end = close(communicator, "destroy");
    if (!end.reductions.empty())
      state_->violate(rank_, "a communicator destroyed with reductions of its own");
    if (!end.finalizing) state_->violate(rank_, "destroy before finalize");
    state_->await_idle(lock, end, "a destroy");
    return Result::success;
  }
  /// Tells the kernels to end, at once. What was allocated is given back at the end of the group,
  /// and that waits for all kernels of the device.
  Result abort(Communicator communicator) override {
    Lock lock(state_->mutex);
    End& end = close(communicator, "abort");
    if (in_group_[std::this_thread::get_id()] && state_->options.version >= 22200)
      aborting_[std::this_thread::get_id()].push_back(&end);
    else
      reclaim(lock, end);
    return Result::success;
  }

  Result make_premul_sum(Reduction* made, const void* factor, DataType type,
                         Communicator communicator) override {
    const std::scoped_lock lock(state_->mutex);
    state_->note(rank_, "make_premul_sum");
    *made = static_cast<Reduction>(++made_);
    end_of(communicator)->reductions[*made] = simulated::factor_of(factor, type);
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
    Lock lock(state_->mutex);
    state_->note(rank_, "group_end");
    if (!std::exchange(in_group_[std::this_thread::get_id()], false))
      state_->violate(rank_, "the end of no group");
    const std::vector<End*> aborting =
        std::exchange(aborting_[std::this_thread::get_id()], std::vector<End*>());
    for (const End* end : aborting) reclaim(lock, *end);
    if (!aborting.empty()) return Result::success;
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
  using Lock = NcclSimulation::State::Lock;
  struct Pending {
    End* end;
    Stream* stream;
    std::vector<Op> ops;
  };

  End* join(const std::shared_ptr<Clique>& clique, int rank, int world_rank, int device) {
    state_->ends.push_back(std::make_unique<End>());
    End* const end = state_->ends.back().get();
    end->clique = clique;
    end->world_rank = world_rank;
    end->device = device;
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
    end.enqueued_at = std::chrono::steady_clock::now() + state_->options.enqueue_time;
    return end;
  }

  static bool all_have_come(const Clique& clique) {
    return std::none_of(clique.ends.begin(), clique.ends.end(),
                        [](const End* end) { return end == nullptr; });
  }

  /// Making a communicator allocates and frees, which waits for all kernels of the device.
  bool is_through(End& end) {
    if (end.is_through || end.is_aborted) return true;
    return end.is_through = !state_->runs_kernels(end.world_rank, end.device);
  }
  bool can_be_made(const Clique& clique) {
    if (!state_->options.init_ends || !all_have_come(clique)) return false;
    bool all = true;
    for (End* end : clique.ends) all = is_through(*end) && all;
    return all;
  }

  Result state_of(End& end) {
    if (!end.is_made) {
      if (!can_be_made(*end.clique)) return Result::in_progress;
      end.is_made = true;
    }
    if (end.busy > 0 && --end.busy > 0) return Result::in_progress;
    if (std::chrono::steady_clock::now() < end.enqueued_at) return Result::in_progress;
    for (auto& [stream, task] : std::exchange(end.enqueuing, {})) {
      ++end.kernels;
      stream->tasks.push_back(std::move(task));
    }
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
        End* const child =
            join(clique, static_cast<int>(rank), members[rank]->world_rank, members[rank]->device);
        *members[rank]->split_slot = reinterpret_cast<Communicator>(child);
      }
    }
    for (End* end : parent.ends) end->splitting = false;
    return true;
  }

  End& close(Communicator communicator, const std::string& name) {
    state_->note(rank_, name);
    End& end = *end_of(communicator);
    if (std::exchange(end.is_aborted, true)) state_->violate(rank_, name + " twice");
    end.enqueuing.clear();
    withdraw(end);
    state_->run();
    return end;
  }

  void reclaim(Lock& lock, const End& end) {
    state_->changed.wait(lock, [&] { return !state_->aborts_hang; });
    state_->await_idle(lock, end, "an abort");
  }

  Result add(const std::string& name, Op op, Communicator communicator, DeviceStream stream) {
    const std::scoped_lock lock(state_->mutex);
    Pending& pending = pending_[std::this_thread::get_id()];
    if (pending.ops.empty()) {
      pending.end = &begin_call(communicator, name);
      pending.stream = &state_->stream(rank_, stream);
    } else {
      state_->note(rank_, name);
      if (pending.end != end_of(communicator))
        state_->violate(rank_, "a group of calls on two communicators");
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
    const auto is_over = [end, ops, arrived] {
      if (end->is_aborted) return true;
      if (!std::exchange(*arrived, true)) arrive(*end, *ops);
      run_arrived(*end->clique);
      return std::all_of(ops->begin(), ops->end(), [](const Op& op) { return op.done; });
    };
    pending.end->enqueuing.emplace_back(pending.stream, [end, is_over] {
      if (!is_over()) return false;
      --end->kernels;
      return true;
    });
  }

  const std::shared_ptr<NcclSimulation::State> state_;
  const int rank_;
  int made_ = static_cast<int>(Reduction::average);
  std::map<std::thread::id, bool> in_group_;
  std::map<std::thread::id, Pending> pending_;
  std::map<std::thread::id, std::vector<End*>> aborting_;
};
}  // namespace

std::shared_ptr<collectives::nccl::NcclApi> NcclSimulation::nccl_of(int rank) {
  return std::make_shared<SimulatedNccl>(state_, rank);
}

}  // namespace dtrun::test
