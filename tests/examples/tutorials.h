// Tutorials: the programs of examples/tutorial that dtrun starts, and what the document shows of
// them on CPU tensors: without its device='cuda:N'.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "examples/printed_blocks.h"

namespace dtrun::test {

struct Tutorial {
  std::string name;
  int rank_count;
  Blocks expected;
};

inline void PrintTo(const Tutorial& tutorial, std::ostream* out) {
  *out << tutorial.name;
}

const std::vector<Tutorial>& tutorials();

/// What scatter_nccl prints where ranks 0 and 1 are given pieces of 3, ranks 2 and 3 of 2.
Blocks pieces_of_two_sizes();

}  // namespace dtrun::test
