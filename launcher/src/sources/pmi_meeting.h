// PmiMeeting: where the dtruns of one mpiexec, or of one job of Flux, meet. The engine does not say
// it, so task 0 tells all by PMI-1.
#pragma once

#include <optional>
#include <string>

#include "dtrun/base/deadline.h"
#include "engines/engine.h"

namespace dtrun::launcher {

/// Completes the number of tasks where it is told at engine.pmi_port; the connection stays as
/// engine.pmi_fd where the head is to be asked for, too.
/// @throws Error kConnection
void count_by_pmi(Engine& engine, base::Deadline deadline);

/// Whether engine.pmi_fd is a connection: its variable may be a leftover, or a program between
/// mpiexec and dtrun may have closed it.
bool can_be_asked(const Engine& engine);

/// Completes head, port and run id by engine.pmi_fd, where that is a connection; else there
/// is nobody to ask, and nothing is changed. All tasks must call this. Takes the descriptor.
/// @param local_addr --local_addr of this dtrun; may be empty
/// @throws Error kConnection: the engine does not answer, or not all tasks have asked before the
/// deadline
void meet_by_pmi(Engine& engine, const std::string& local_addr, base::Deadline deadline);

/// For --dry-run: the other tasks may not come, so nobody is asked, and the head is named by its
/// place only.
void foresee_meeting_by_pmi(Engine& engine);

}  // namespace dtrun::launcher
