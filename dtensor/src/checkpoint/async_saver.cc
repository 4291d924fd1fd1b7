#include "dtrun/dtensor/checkpoint/async_saver.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <future>
#include <map>
#include <system_error>
#include <utility>

#include "checkpoint/flat_state.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/threads.h"

namespace dtrun::dtensor::dcp {

namespace {

/// For the saver: the training has the other threads.
struct OneThread {
  OneThread() { tensors::set_num_threads(1); }
  ~OneThread() { tensors::set_num_threads(before); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  const int before = tensors::num_threads();
};

/// The calling thread, and those that it starts, run where the training leaves a core idle: hashing
/// and copying for the disk would take turns with its threads. There is no way back, so this is for
/// a thread that ends with the save. Where the system refuses, all stays as it is.
void stand_behind_training() {
  constexpr int kNice = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
}

}  // namespace

/// A copy of a state's elements, which nobody else has.
class AsyncSaver::Snapshot : public Stateful {
 public:
  /// What is copied, and the values as they are now. @throws Error for what no checkpoint can have
  void begin(const State& state) {
    frozen_ = {};
    copies_.clear();
    const FlatState flat = flattened(state);
    Memory memory = std::exchange(memory_, {});
    for (const auto& [name, tensor] : flat.tensors) {
      const tensors::LocalTensor source = tensor.local();
      tensors::LocalTensor target = memory[name];
      if (!target.defined() || target.dtype() != source.dtype() || target.shape() != source.shape())
        target = tensors::empty(source.shape(), {.dtype = source.dtype()});
      memory_[name] = target;
      copies_.push_back({name, source, target, source.storage()->version()});
      frozen_.tensors.insert(
          name, tensor.is_distributed() ? Tensor(tensor.spec(), target) : Tensor(target));
    }
    frozen_.values = flat.values;
    frozen_.rank_values = flat.rank_values;
  }
  /// Copies those that are on GPUs, or all, and lets go of them.
  void copy_devices() {
    copy([](const Copy& one) { return one.source.device() != tensors::kCpu; });
  }
  void copy_all() {
    copy([](const Copy&) { return true; });
  }
  /// Lets go of what was not copied.
  void drop() { copies_.clear(); }
  /// The rest, and what has come of it, for the other ranks. @throws what went wrong
  std::string stage(std::exception_ptr fault, std::promise<void>& staged) {
    try {
      if (!fault) copy_all();
    } catch (const std::exception&) {
      fault = std::current_exception();
    }
    drop();
    staged.set_value();
    if (fault) std::rethrow_exception(fault);
    return "";
  }

  Saved saved(const NamedTensors&) const override { return frozen_; }
  nn::StateDict targets(const std::vector<std::string>&, const NamedTensors&) override {
    return {};
  }
  void restore(const Loaded&) override {}

 private:
  struct Copy {
    std::string name;
    tensors::LocalTensor source, target;
    std::uint32_t version;  ///< of the source, when the save began
  };

  /// @throws Error where one was written to since begin()
  void copy(bool (*is_meant)(const Copy&)) {
    for (const Copy& one : copies_) {
      if (!is_meant(one)) continue;
      one.target.copy_(one.source);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (one.source.storage()->version() != one.version)
        throw base::Error(base::ErrorCode::kUsage,
                          "\"" + one.name + "\" was written to while it was copied",
                          "a save whose copy is made in the background was under way",
                          "wait_staged() before optimizer.step()");
    }
    std::erase_if(copies_, is_meant);
  }

  using Memory = std::map<std::string, tensors::LocalTensor>;

  std::vector<Copy> copies_;
  Memory memory_;  ///< of the copies, which are made there again
  Saved frozen_;
};

struct AsyncSaver::Work {
  std::promise<void> staged;
  std::future<void> is_staged = staged.get_future();
  std::future<SaveReport> report;
};

AsyncSaver::AsyncSaver(std::shared_ptr<rendezvous::Store> store, int rank, int size,
                       const std::string& name)
    : agreement_(std::make_unique<StoreAgreement>(std::move(store), name, rank, size)),
      snapshot_(std::make_shared<Snapshot>()) {}

AsyncSaver::~AsyncSaver() {
  try {
    wait();
  } catch (const std::exception& error) {
    base::log::error(base::log::Component::kDtensor, "a checkpoint was not saved: {}",
                     error.what());
  }
}

bool AsyncSaver::is_saving() const {
  return work_ != nullptr &&
         work_->report.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

std::optional<SaveReport> AsyncSaver::wait() {
  const std::unique_ptr<Work> work = std::move(work_);
  if (work == nullptr) return std::nullopt;
  return work->report.get();
}

void AsyncSaver::wait_staged() {
  if (work_ != nullptr) work_->is_staged.wait();
}

SaveReport AsyncSaver::write(const std::string& folder, const AsyncSaveOptions& options) {
  State frozen;
  frozen.add({"", snapshot_});
  const SaveReport report = dcp::save(
      folder, frozen,
      {.agreement = agreement_.get(), .existing = options.existing, .files = options.files});
  try {
    if (options.then) options.then();
  } catch (const std::exception& error) {
    base::log::error(base::log::Component::kDtensor, "what follows the save of {} failed: {}",
                     folder, error.what());
  }
  return report;
}

void AsyncSaver::save(const std::string& folder, const State& state,
                      const AsyncSaveOptions& options) {
  wait();
  // What cannot be copied is told to the others by the thread, which take part in every save.
  std::exception_ptr fault;
  try {
    snapshot_->begin(state);
    if (options.staging == Staging::at_once) {
      snapshot_->copy_all();
    } else {
      snapshot_->copy_devices();
    }
  } catch (const std::exception&) {
    snapshot_->drop();
    fault = std::current_exception();
  }
  auto work = std::make_unique<Work>();
  auto saved = [this, folder, fault, options, &staged = work->staged, caller = ::gettid()] {
    const OneThread one_thread;
    together(*agreement_, [&] {
      const std::string text = snapshot_->stage(fault, staged);
      // wait_staged() waits for the copy alone.
      if (::gettid() != caller) stand_behind_training();
      return text;
    });
    return write(folder, options);
  };
  try {
    work->report = std::async(std::launch::async, saved);
  } catch (const std::system_error&) {
    // No thread is to be had: here, so that no rank waits for this one.
    work->report = std::async(std::launch::deferred, saved);
    work->report.wait();
  }
  work_ = std::move(work);
}

}  // namespace dtrun::dtensor::dcp
