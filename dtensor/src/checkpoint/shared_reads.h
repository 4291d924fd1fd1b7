// Shared reads: the ranks of a machine read the blocks that several of them need once, one rank
// each block, and send each other what they need of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/block_shares.h"
#include "checkpoint/file_bytes.h"
#include "checkpoint/shard_file.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/dtensor/checkpoint/file_calls.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::dtensor::dcp {

/// One load's, on one rank.
class SharedReads {
 public:
  /// Plans, and gets the memory for messages, so that nothing fails between them. Not collective.
  /// @param wishes by rank of the group, alike on all ranks of the machine; of those on other
  /// machines: none @param memory of this rank's wishes, row-major, in the saved dtypes
  SharedReads(const Manifest& manifest, const std::vector<std::vector<Wish>>& wishes,
              std::vector<char*> memory, collectives::ProcessGroup group);

  const std::vector<SharedPart>& parts() const { return parts_; }
  /// Collective over the ranks of the machine, all of which go on to the end, whoever throws.
  /// Everything is verified by the rank that reads it. @return bytes that this rank has read
  /// @throws Error of this rank's reading; of the group
  std::uint64_t run(FileCalls& files, const std::string& folder, PageCache cache);

 private:
  /// What goes from one rank to another in a round, part by part, wish by wish.
  struct Message {
    std::vector<std::size_t> parts;
    std::uint64_t bytes = 0;
  };
  /// What a rank reads before it sends.
  struct Round {
    std::vector<std::size_t> parts;
    std::uint64_t bytes = 0;
    std::map<int, Message> to;  ///< by rank
  };
  class Reader;

  template <typename Use>  // called with (wish, runs of what it needs of the bytes)
  void each_wish(const SharedPart& part, int rank, std::uint64_t begin, std::uint64_t end,
                 const Use& use) const;
  const SavedChunk& chunk_of(const SharedPart& part) const;
  void plan_rounds();
  void allocate();
  /// Takes one part's bytes to the wishes of this rank, and into the messages.
  void pass_on(const SharedPart& part, std::uint64_t begin, std::string_view bytes,
               std::map<int, char*>& messages) const;
  void take(const Message& message, const char* bytes) const;

  const Manifest& manifest_;
  const std::vector<std::vector<Wish>>& wishes_;
  const std::vector<char*> memory_;
  const collectives::ProcessGroup group_;
  std::vector<SharedPart> parts_;
  std::vector<std::vector<Round>> rounds_;  ///< by reader
  std::size_t most_rounds_ = 0;
  tensors::LocalTensor sent_, received_;
};

}  // namespace dtrun::dtensor::dcp
