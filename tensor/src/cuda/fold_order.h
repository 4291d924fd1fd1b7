// FoldOrder: fold_kernel.h's tree of blocks, as indices. The blocks of a row are joined in pairs,
// where n of them are cut into n / 2 and the rest; so all nodes of one depth hold either
// floor(n / 2^depth) blocks or one more, and at depth floor(log2 n) the tree is full and every node
// holds one block or two. Above that depth it is an ordinary binary tree over 2^depth values. Pure.
#pragma once

#include <cstdint>

#include "host_device.h"

namespace dtrun::tensors::cuda {

/// floor(log2 blocks). @param blocks at least 1
DTRUN_BOTH inline int full_depth(std::int64_t blocks) {
  int depth = 0;
  while ((blocks >> (depth + 1)) != 0) ++depth;
  return depth;
}

struct BlockRange {
  std::int64_t first;
  std::int64_t count;
};

/// What node `index` of that depth holds.
DTRUN_BOTH inline BlockRange node_blocks(std::int64_t blocks, int depth, std::int64_t index) {
  BlockRange range{0, blocks};
  for (int level = depth - 1; level >= 0; --level) {
    const std::int64_t left = range.count / 2;
    if (((index >> level) & 1) != 0) {
      range.first += left;
      range.count -= left;
    } else {
      range.count = left;
    }
  }
  return range;
}

}  // namespace dtrun::tensors::cuda
