#include "group_call.h"

#include <optional>
#include <utility>

namespace dtrun::collectives {

void GroupCall::require_possible() const {
  if (options_.timeout) require_timeout(*options_.timeout, op_kind_name(print.kind));
  if (std::optional<base::Error> lack = backend_->lacks(print.kind, print.dtype, print.reduce_op))
    throw *std::move(lack);
}

void GroupCall::refuse(const base::Error& error) const {
  // A message that was never sent concerns no other rank, so the group stays usable.
  if (print.kind != OpKind::send && print.kind != OpKind::receive) core_.reject(print, error);
}

void GroupCall::tell_of_exception() const noexcept {
  try {
    refuse(base::Error(base::ErrorCode::kSystem, "the call ended with an exception",
                       "memory may have run out", "look at that rank's output"));
  } catch (...) {
    // Without memory for the text the members run into their deadline.
  }
}

void GroupCall::show_to_observers(const ObservedCall& seen) {
  for (CallObserver* observer = CallObserver::innermost(); observer != nullptr;
       observer = observer->outer()) {
    observer->on_call(seen);
    if (std::function<void()> end = observer->at_end(seen)) at_end_.push_back(std::move(end));
  }
}

bool GroupCall::run_now(std::span<const Buffer> inputs, std::span<const Buffer> outputs) {
  try {
    const bool is_done =
        !options_.async && backend_->run_now(print, inputs, outputs,
                                             options_.timeout.value_or(core_.options().timeout));
    if (is_done) {
      for (const auto& end : at_end_) end();
    }
    return is_done;
  } catch (...) {
    tell_of_exception();
    throw;
  }
}

Call GroupCall::take() {
  arm();
  Call call;
  call.fingerprint = print;
  call.deadline = base::Deadline::after(options_.timeout.value_or(core_.options().timeout));
  call.async = options_.async;
  std::move(staging_).attach_to(call);
  if (!at_end_.empty()) {
    call.finish = [first = std::move(call.finish), ends = std::move(at_end_)] {
      if (first) first();
      for (const auto& end : ends) end();
    };
  }
  return call;
}

}  // namespace dtrun::collectives
