// RankRecord: what a rank shows of itself while it works: the line on its board, for local peers,
// and its slot of the job page, for the launcher. Cheap: no system call but the clock's.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "dtrun/collectives/fingerprint.h"
#include "dtrun/rendezvous/job_page.h"
#include "rank_board.h"

namespace dtrun::collectives::cpu {

class RankRecord {
 public:
  /// @param board the rank's own; outlives this. @param job_page may be null
  RankRecord(RankBoard& board, std::shared_ptr<rendezvous::JobPage> job_page, int local_rank);

  /// @return the operation's number, for end()
  std::uint64_t begin(const Fingerprint& fingerprint, std::string_view group, std::uint64_t bytes);
  /// begin() and end() in one, for an operation that is about to be over. @return as begin()
  std::uint64_t pass(const Fingerprint& fingerprint, std::string_view group, std::uint64_t bytes);
  /// It was not over.
  void go_on(std::uint64_t number);
  void waiting_for(std::uint64_t number, int global_rank);
  void end(std::uint64_t number);
  /// This rank fails because of that one.
  void set_victim_of(int global_rank);
  BoardLine line();

 private:
  void write(const Fingerprint& fingerprint, std::string_view group, std::uint64_t bytes);
  void set_state(rendezvous::RankState state);
  rendezvous::Operation* entry(std::uint64_t number);

  RankBoard& board_;
  std::shared_ptr<rendezvous::JobPage> job_page_;
  rendezvous::RankSlot* slot_ = nullptr;
  std::mutex mutex_;
  std::uint64_t begun_ = 0;
  int active_ = 0;
  BoardLine line_;
};

}  // namespace dtrun::collectives::cpu
