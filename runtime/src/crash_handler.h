// What happens when a worker crashes (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT): its stack goes
// into error.json, from which the launcher shows it with names and lines. Then the signal does what
// it would have done: the handler that was there before runs, or the process ends by the same
// signal, with the same core.
#pragma once

#include "dtrun/base/env.h"

namespace dtrun::runtime {

/// Installs the handlers, once per process; nothing happens where TORCHELASTIC_ERROR_FILE names no
/// file. A signal that is ignored stays so. The calling thread gets a stack for handlers, unless it
/// has one, so that an overflow of its own stack is told of; in other threads such an overflow ends
/// the process without a word. Children of fork are not told of.
void report_crashes(const base::Environment& environment);

}  // namespace dtrun::runtime
