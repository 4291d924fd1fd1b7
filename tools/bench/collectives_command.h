// `dtrun-bench collectives`: its options, and the run over any Contender.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/contender.h"
#include "bench/report.h"

namespace CLI {
class App;
}

namespace dtrun::bench {

struct CollectivesOptions {
  std::vector<std::string> operations;          ///< empty: all
  std::vector<std::string> backends = {"cpu"};  ///< measured in turns
  std::string plugin = {};                      ///< that registers some of them
  int machine_ranks = 0;                        ///< each so many share memory; 0: all of a machine
  bool shared_memory = false;                   ///< the tensors lie there
  std::size_t least_bytes = 8;
  std::size_t most_bytes = 16 << 20;
  std::size_t factor = 8;
  std::size_t step = 0;  ///< bytes; 0: the factor counts
  std::string reduction = "sum";
  std::string dtype = "f32";
  int root = 0;
  int samples = 100;
  int warmup = 10;
  int calls = 0;
  int check = 1;
  std::string json = {};
  std::string csv = {};
  std::string svg = {};
};

void add_options(CLI::App& app, CollectivesOptions& options);

/// Measures all that was asked for and, on rank 0, prints the table as it grows and writes the
/// files. Collective. @param contenders one for each backend, of the same ranks; they take turns at
/// each operation
/// @return rank 0's reports, one for each contender; the others' have no measurements
/// @throws base::Error kUsage for options that make no sense, on all ranks
std::vector<Report> measure_collectives(const CollectivesOptions& options,
                                        std::span<Contender* const> contenders);

/// Of --machine-ranks, for runtime::InitOptions: the same text for each so many ranks, by RANK of
/// the environment. @param machine_ranks 0: "", which is no simulation
std::string machine_of_rank(int machine_ranks);

/// 1 where results were wrong.
int exit_code_of(std::span<const Report> reports);

/// dtrun-bench collectives: joins the job, measures. @return the exit code
int run_collectives(const CollectivesOptions& options);

}  // namespace dtrun::bench
