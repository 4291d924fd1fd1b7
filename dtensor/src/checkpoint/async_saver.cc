#include "dtrun/dtensor/checkpoint/async_saver.h"

#include <exception>
#include <future>
#include <utility>

#include "checkpoint/flat_state.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor::dcp {
namespace {

/// A state that was copied: nobody else has its elements.
class FrozenPart : public Stateful {
 public:
  explicit FrozenPart(const State& state) {
    const FlatState flat = flattened(state);
    for (const auto& [name, tensor] : flat.tensors) {
      const tensors::LocalTensor copy = tensor.local().device() == tensors::kCpu
                                            ? tensor.local().clone()
                                            : tensor.local().to(tensors::kCpu);
      frozen_.tensors.insert(name,
                             tensor.is_distributed() ? Tensor(tensor.spec(), copy) : Tensor(copy));
    }
    frozen_.values = flat.values;
    frozen_.rank_values = flat.rank_values;
  }
  Saved saved(const NamedTensors&) const override { return frozen_; }
  nn::StateDict targets(const std::vector<std::string>&, const NamedTensors&) override {
    return {};
  }
  void restore(const Loaded&) override {}

 private:
  Saved frozen_;
};

}  // namespace

struct AsyncSaver::Work {
  std::future<SaveReport> report;
};

AsyncSaver::AsyncSaver(std::shared_ptr<rendezvous::Store> store, int rank, int size,
                       const std::string& name)
    : agreement_(std::make_unique<StoreAgreement>(std::move(store), name, rank, size)) {}

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

void AsyncSaver::save(const std::string& folder, const State& state,
                      const AsyncSaveOptions& options) {
  wait();
  // What cannot be copied is told to the others by the thread, which take part in every save.
  auto frozen = std::make_shared<State>();
  std::exception_ptr fault;
  try {
    frozen->add({"", std::make_shared<FrozenPart>(state)});
  } catch (const std::exception&) {
    fault = std::current_exception();
  }
  auto work = std::make_unique<Work>();
  auto saved = [this, folder, frozen = std::move(frozen), fault, options]() mutable {
    // The copy goes with this call; the lambda lives until the next save.
    const std::shared_ptr<State> own = std::move(frozen);
    together(*agreement_, [&]() -> std::string {
      if (fault) std::rethrow_exception(fault);
      return "";
    });
    return dcp::save(
        folder, *own,
        {.agreement = agreement_.get(), .existing = options.existing, .files = options.files});
  };
  work->report = std::async(std::launch::async, std::move(saved));
  work_ = std::move(work);
}

}  // namespace dtrun::dtensor::dcp
