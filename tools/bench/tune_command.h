// `dtrun-bench tune`: what the links between ranks cost, along each axis of a mesh, as the planner
// of DTensor reads it (dtrun/dtensor/plan/link_file.h), and up to which sizes the collectives of
// the cpu backend go which way (dtrun/collectives/cost_table.h).
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace dtrun::bench {

struct TuneOptions {
  std::vector<int> mesh;  ///< empty: one axis of all ranks
  std::vector<std::string> names;
  std::string backend = "cpu";
  int machine_ranks = 0;  ///< each so many share memory; 0: all of a machine
  std::string file;
};

void add_options(CLI::App& app, TuneOptions& options);

/// Joins the job, measures, writes the file on rank 0. @return the exit code
/// @throws base::Error kUsage for a mesh that the ranks do not make, before anybody measures
int run_tune(const TuneOptions& options);

}  // namespace dtrun::bench
