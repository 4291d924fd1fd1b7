// Trace: records, while it stands, what its thread computes and what it communicates: operators,
// their backwards, modules, optimizer steps, and all collectives and messages. For chrome://tracing
// and https://ui.perfetto.dev. Traces may stand in one another: the innermost hears of operators,
// all hear of collectives. For use by one thread.
//
//     Trace trace;
//     loss_of(model(x)).backward();
//     optimizer.step();
//     trace.write("step.json", mesh.group());   // all ranks' in one file
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dtrun/collectives/process_group.h"

namespace dtrun::dtensor {

struct TraceEvent {
  std::string name;      ///< "matmul", "matmul, backward", "all_reduce", "Gpt.blocks.0.up"
  std::string category;  ///< "op", "backward", "module", "step", "wait", "communication"
  std::string section;   ///< the module in which it was called: "Gpt.blocks.0"; empty: none
  /// Microseconds since the clock's epoch: ranks of one machine have one clock.
  double begin = 0;
  double end = 0;
  std::int64_t bytes = 0;  ///< of communication: that this rank gives
  int ranks = 0;           ///< that take part in it
  bool blocks = false;     ///< the thread waited for it
  std::string cause;       ///< what asked for it: "matmul, backward"

  bool is_communication() const { return category == "communication"; }
};

class Trace {
 public:
  Trace();
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// What has ended so far, by the time of its beginning.
  std::vector<TraceEvent> events() const;
  /// Of communication, the share of time in which this thread computed: 1 where all is hidden; 0
  /// where there is none.
  double hidden_share() const;
  /// Chrome's trace event format: process `rank`, a thread for what is computed, and one for each
  /// communication that goes on at the same time.
  std::string to_json(int rank = 0) const;
  /// All ranks' events in one file, which the group's first rank writes. Collective, over the CPUs'
  /// backend.
  /// @throws Error kSystem on that rank where it cannot be written
  void write(
      const std::string& path, const collectives::ProcessGroup& group,
      collectives::ProcessGroup::Site site = collectives::ProcessGroup::Site::current()) const;

 private:
  class Recorder;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace dtrun::dtensor
