// ToldCalls: while it stands, what its thread asks groups for is told as that of a layer around
// modules, such as fully_shard(): by counters, traces and the log.
#pragma once

#include <memory>
#include <string_view>

#include "dtrun/base/call_site.h"
#include "move/cause.h"

namespace dtrun::dtensor {

class ToldCalls {
 public:
  /// @param op "unshard of layers.0"; borrowed @param site where the program made the layer
  ToldCalls(std::string_view op, const base::CallSite& site);
  ~ToldCalls();
  ToldCalls(const ToldCalls&) = delete;
  ToldCalls& operator=(const ToldCalls&) = delete;

 private:
  class Log;
  const Cause cause_;
  const std::unique_ptr<Log> log_;  ///< null: nothing is logged
};

}  // namespace dtrun::dtensor
