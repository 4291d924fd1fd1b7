// FlightFiles: the files about what a round's ranks have called: the flight record of one that
// failed, and the trace of any. Out of the job page, when no rank lives any more. The output's
// thread writes them, and the agent tells where they are.
#pragma once

#include "dtrun/rendezvous/job_page.h"
#include "output/log_folder.h"
#include "output/output_thread.h"
#include "plan/launch_plan.h"
#include "ranks/guard_link.h"

namespace dtrun::launcher {

class FlightFiles {
 public:
  /// All outlive this; the link outlives also what is being written.
  struct Surroundings {
    const LaunchPlan& plan;
    const LogFolder& folder;
    OutputThread& output;
    GuardLink& link;
    const rendezvous::JobPage& page;
  };
  explicit FlightFiles(const Surroundings& surroundings) : around_(surroundings) {}

  /// How the page's histories must be, so that they hold what is to be written.
  static rendezvous::HistoryPlan history_plan(const LaunchPlan& plan);

  /// Nothing where no rank has called anything, or no record is wanted.
  void write_record(const StartOrder& round);
  /// Nothing without --trace.
  void write_trace(const StartOrder& round);

 private:
  const Surroundings around_;
};

}  // namespace dtrun::launcher
