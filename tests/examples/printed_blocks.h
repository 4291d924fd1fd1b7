// Printed blocks: what several ranks printed, as a set of pieces that each came out in one piece.
#pragma once

#include <string>
#include <vector>

namespace dtrun::test {

using Blocks = std::vector<std::string>;

/// One block per rank: the pattern with every {} replaced by the rank.
inline Blocks blocks_of_ranks(int rank_count, const std::string& pattern) {
  Blocks blocks;
  for (int rank = 0; rank < rank_count; ++rank) {
    std::string block = pattern;
    for (std::size_t at = block.find("{}"); at != std::string::npos; at = block.find("{}"))
      block.replace(at, 2, std::to_string(rank));
    blocks.push_back(block);
  }
  return blocks;
}

/// Empty where `output` is the blocks, whole, in any order, and nothing else.
inline std::string what_differs(std::string output, Blocks blocks) {
  std::string missing;
  while (!output.empty()) {
    bool found = false;
    for (std::size_t i = 0; i < blocks.size() && !found; ++i) {
      if (!output.starts_with(blocks[i])) continue;
      output.erase(0, blocks[i].size());
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
      found = true;
    }
    if (!found) break;
  }
  if (!output.empty()) return "not expected here: " + output;
  for (const std::string& block : blocks) missing += block;
  return missing.empty() ? "" : "missing: " + missing;
}

}  // namespace dtrun::test
