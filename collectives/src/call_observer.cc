#include "dtrun/collectives/call_observer.h"

namespace dtrun::collectives {

constinit thread_local CallObserver* CallObserver::innermost_ = nullptr;

}  // namespace dtrun::collectives
