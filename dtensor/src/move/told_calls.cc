#include "move/told_calls.h"

#include "dtrun/collectives/call_observer.h"
#include "move/move_log.h"

namespace dtrun::dtensor {

class ToldCalls::Log : public collectives::CallObserver {
 public:
  void on_call(const collectives::ObservedCall& call) override { write_call(call); }
};

ToldCalls::ToldCalls(std::string_view op, const base::CallSite& site)
    : cause_(Cause::of_layer(op, site)),
      log_(are_moves_logged() ? std::make_unique<Log>() : nullptr) {}
ToldCalls::~ToldCalls() = default;

}  // namespace dtrun::dtensor
