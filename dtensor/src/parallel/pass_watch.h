// PassWatch: what a forward and backward take while it stands.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "dtrun/collectives/call_observer.h"
#include "dtrun/dtensor/parallel/predict_step.h"
#include "dtrun/tensor/host_memory.h"
#include "move/span.h"

namespace dtrun::dtensor {

class PassWatch {
 public:
  /// @param held bytes of parameters, states and gradients that stand already
  explicit PassWatch(std::int64_t held)
      : held_(held), backward_(SpanObserver::innermost(), meter_) {}
  void note(StepMemory& memory) const {
    memory.gathered = gather_.bytes;
    memory.activations = backward_.bytes;
    if (meter_.counts()) memory.peak = held_ + meter_.peak();
  }

 private:
  /// As what comes together in it.
  class LargestGather : public collectives::CallObserver {
   public:
    void on_call(const collectives::ObservedCall& call) override {
      if (call.kind != collectives::OpKind::all_gather || call.ranks < 2) return;
      bytes = std::max(bytes, call.bytes_sent / (call.ranks - 1) * call.ranks);
    }
    std::int64_t bytes = 0;
  };
  /// What the forward has left when backward begins. It hands on to the observer around it, such as
  /// a Trace.
  class BackwardBegin : public SpanObserver {
   public:
    /// @param around SpanObserver::innermost(), before this one stands
    BackwardBegin(SpanObserver* around, const tensors::HostMemoryMeter& meter)
        : around_(around), meter_(meter) {}
    void begin(Kind kind, std::string_view name) override {
      if (kind == Kind::backward && !std::exchange(has_begun_, true)) bytes = meter_.now();
      if (around_ != nullptr) around_->begin(kind, name);
    }
    void end() override {
      if (around_ != nullptr) around_->end();
    }
    std::int64_t bytes = 0;

   private:
    SpanObserver* const around_;
    const tensors::HostMemoryMeter& meter_;
    bool has_begun_ = false;
  };

  const std::int64_t held_;
  const tensors::HostMemoryMeter meter_;
  LargestGather gather_;
  BackwardBegin backward_;
};

/// Of this rank's part.
inline std::int64_t bytes_here(const Tensor& tensor) {
  return tensor.local().numel() * static_cast<std::int64_t>(tensors::item_size(tensor.dtype()));
}

}  // namespace dtrun::dtensor
