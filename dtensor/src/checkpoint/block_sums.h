// BlockSums: the checksums of a chunk's blocks, while its bytes pass by in pieces of any size.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

struct XXH3_state_s;

namespace dtrun::dtensor::dcp {

class BlockSums {
 public:
  BlockSums();
  ~BlockSums();
  BlockSums(const BlockSums&) = delete;
  BlockSums& operator=(const BlockSums&) = delete;

  void add(std::string_view bytes);
  /// Of all that was added, in blocks of kBlockBytes; begins anew.
  std::vector<std::uint64_t> take();

 private:
  void end_block();

  XXH3_state_s* const state_;
  std::uint64_t in_block_ = 0;
  std::vector<std::uint64_t> sums_;
};

}  // namespace dtrun::dtensor::dcp
