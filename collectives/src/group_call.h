// GroupCall: one call of a ProcessGroup from its arguments to a backend: counted, checked, its
// tensors contiguous. Lives for the call, on its thread.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"
#include "dtrun/base/error.h"
#include "dtrun/collectives/agreed_exchange.h"
#include "dtrun/collectives/call_observer.h"
#include "group_core.h"
#include "parts.h"
#include "premul_factor.h"

namespace dtrun::collectives {

class GroupCall {
 public:
  /// @param options borrowed @throws Error kAborted in a group that this rank has left
  GroupCall(GroupCore& core, OpKind kind, const CallOptions& options, const base::CallSite& site)
      : print(opened(core, kind).next_fingerprint(kind, site)), core_(core), options_(options) {}
  GroupCall(GroupCore&, OpKind, CallOptions&&, const base::CallSite&) = delete;
  /// Leaves by an exception: what was counted will not come, and the peers of a collective are
  /// told, unless the group has failed already.
  [[gnu::always_inline]] ~GroupCall() {
    if (armed_ && std::uncaught_exceptions() > exceptions_) tell_of_exception();
  }
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;
  /// The members have met: what fails from now on is this rank's own affair.
  void settle() { armed_ = false; }

  /// Chooses the backend by that tensor, then runs `arguments(const GroupShape&)`. What any of it
  /// throws is told to the peers of a collective, who would wait for this rank.
  template <typename Arguments>
  void check(const LocalTensor& tensor, std::string_view what, Arguments arguments) {
    check_on(
        [&] {
          backend_ = &core_.backend_for(tensor, what);
          return tensor.device().type;
        },
        [&](const GroupShape& group) {
          print.dtype = tensor.dtype();
          arguments(group);
        });
  }
  /// The same, by the first tensor of a list with one entry per rank.
  template <typename Arguments>
  void check(const std::vector<LocalTensor>& list, std::string_view what, Arguments arguments) {
    check([&](const GroupShape& group) { require_length(group, list, what); });
    // Writing a name that no error needs takes as long as a part of a short message.
    const LocalTensor& first = list.front();
    const bool is_served = first.defined() && core_.backend_of(first.device().type) != nullptr;
    const std::string name = is_served ? std::string() : fmt::format("{}[0]", what);
    check(first, is_served ? what : std::string_view(name), arguments);
  }
  /// The same, by a device.
  template <typename Arguments>
  void check(tensors::Device device, std::string_view what, Arguments arguments) {
    check_on(
        [&] {
          backend_ = &core_.backend_for(device, what);
          return device.type;
        },
        arguments);
  }
  /// The same for a call without tensors.
  template <typename Arguments>
  void check(Arguments arguments) {
    check_on(
        [&] {
          backend_ = &core_.main_backend();
          return backend_->device_type();
        },
        arguments);
  }

  /// Tells the thread's observers. @param bytes_sent asked only where there is one
  template <typename BytesSent>
  void show(BytesSent bytes_sent) {
    if (CallObserver::innermost() == nullptr) [[likely]]
      return;
    show_to_observers({print.kind, print.dtype, bytes_sent(), core_.size(), core_.options().name,
                       options_.async});
  }

  int rank() const { return core_.rank(); }
  Backend& backend() { return *backend_; }
  /// Hands a collective over, with what it gives and gets as Collective says; one tensor that is
  /// both is worked on in place. A blocking call on contiguous tensors goes the backend's short way
  /// where it has one.
  [[gnu::always_inline]] Work run(const TensorList& inputs, const TensorList& outputs) {
    const bool may_scale = print.reduce_op == ReduceOp::premul_sum;
    if (!options_.async && !may_scale && run_now(inputs, outputs)) [[likely]]
      return Work();
    return run_long(inputs, outputs);
  }
  /// The same of an all_to_all whose plan all ranks know.
  Work run(const AgreedExchange& exchange);
  /// Of a message that was over at once: what the observers want then.
  void end_now() const {
    if (kept_ == nullptr) return;
    for (const auto& end : kept_->at_end) end();
  }
  /// What the backend gets; once. Counts the call. @param bytes of its buffers
  Call take(std::uint64_t bytes);

  /// Where the call's tensors are made contiguous.
  CallBuffers& buffers() {
    arm();
    return kept().buffers;
  }

  Fingerprint print;

 private:
  static GroupCore& opened(GroupCore& core, OpKind kind) {
    core.require_open(kind);
    return core;
  }
  /// @param choose_backend returns the type of its device
  template <typename Choose, typename Arguments>
  void check_on(Choose choose_backend, Arguments arguments) {
    try {
      arguments(core_.shape(choose_backend()));
      require_possible();
    } catch (const base::Error& error) {
      refuse(error);
      throw;
    }
  }
  /// What did not go the short way.
  Work run_long(const TensorList& inputs, const TensorList& outputs);
  Work hand_over(std::span<const LocalTensor> inputs, std::span<const LocalTensor> outputs);
  Work hand_over_scaled(std::span<const LocalTensor> inputs, std::span<const LocalTensor> outputs);
  Work start(Collective collective);
  /// @throws Error for a timeout of nothing, a factor too many or too few, and for what the backend
  /// lacks
  [[gnu::always_inline]] void require_possible() const {
    if (options_.timeout) require_timeout(*options_.timeout, op_kind_name(print.kind));
    if ((print.reduce_op == ReduceOp::premul_sum) != options_.factor.has_value())
      require_factor(print.reduce_op, options_.factor);
    if (std::optional<base::Error> lack = backend_->lacks(print)) [[unlikely]]
      throw *std::move(lack);
  }
  [[gnu::always_inline]] bool run_now(const TensorList& inputs, const TensorList& outputs) {
    if (inputs.parts == nullptr && outputs.parts == nullptr && inputs.tensors.size() <= 1 &&
        outputs.tensors.size() <= 1)
      return run_singles_now(inputs.tensors, outputs.tensors);
    return run_lists_now(inputs, outputs);
  }
  bool run_singles_now(std::span<const LocalTensor> inputs, std::span<const LocalTensor> outputs);
  bool run_lists_now(const TensorList& inputs, const TensorList& outputs);
  // These are inlined: a call of each would take as long as a part of a small collective.
  [[gnu::always_inline]] inline bool run_now(const AgreedExchange& exchange);
  /// The same of one tensor at the most on each side.
  [[gnu::always_inline]] inline bool run_single_now(std::span<const LocalTensor> inputs,
                                                    std::span<const LocalTensor> outputs,
                                                    const PartPeers* peers = nullptr);
  /// @param peers null: lists are as Collective says @return false: nothing was done
  [[gnu::always_inline]] inline bool go_short_way(std::span<const Buffer> inputs,
                                                  std::span<const Buffer> outputs,
                                                  const PartPeers* peers);
  /// Tells the peers, too.
  void require_each_apart(const CollectiveView& collective) const;
  void show_to_observers(const ObservedCall& seen);
  void refuse(const base::Error& error) const;
  void tell_of_exception() const noexcept;
  /// Asking for exceptions takes nanoseconds, which the short way does not have.
  void arm() {
    if (armed_) return;
    exceptions_ = std::uncaught_exceptions();
    armed_ = true;
  }

  /// What a call does not have that goes the short way, as a rule.
  struct Kept {
    CallBuffers buffers;
    std::vector<std::function<void()>> at_end;  ///< of the observers
  };
  Kept& kept() {
    if (kept_ == nullptr) kept_ = std::make_unique<Kept>();
    return *kept_;
  }

  GroupCore& core_;
  const CallOptions& options_;
  Backend* backend_ = nullptr;
  std::unique_ptr<Kept> kept_;
  int exceptions_ = 0;
  bool armed_ = false;
};

}  // namespace dtrun::collectives
