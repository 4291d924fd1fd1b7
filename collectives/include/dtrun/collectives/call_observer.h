// CallObserver: while one stands, its thread tells it of every collective and message that it asks
// a group for. What counters are made of. Several may stand, the last one innermost.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "dtrun/collectives/fingerprint.h"
#include "dtrun/tensor/dtype.h"

namespace dtrun::collectives {

/// What the arguments of a call say.
struct ObservedCall {
  OpKind kind;
  tensors::DType dtype;
  /// That this rank gives to others, once for each rank that needs it.
  std::int64_t bytes_sent;
  int ranks;
  std::string_view group;
  bool async = false;
};

class CallObserver {
 public:
  CallObserver() : outer_(innermost_) { innermost_ = this; }
  virtual ~CallObserver() { innermost_ = outer_; }
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

  virtual void on_call(const ObservedCall& call) = 0;
  /// Asked after on_call(). What it returns, if anything, is called once when the call has ended
  /// well: of an asynchronous one by the thread that finished it, maybe after the observer has
  /// gone.
  virtual std::function<void()> at_end(const ObservedCall&) { return {}; }

  /// Of this thread; null as a rule.
  static CallObserver* innermost() { return innermost_; }
  CallObserver* outer() const { return outer_; }

 private:
  static constinit thread_local CallObserver* innermost_;
  CallObserver* const outer_;
};

}  // namespace dtrun::collectives
