// RankRecord: what a rank shows of itself while it works: the line on its boards, for local peers,
// and its slot of the job page, for the launcher. One for each rank of a job, shared by all its
// groups and their backends: the slot has one writer. Cheap: no system call but the clock's.
// Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dtrun/base/quick_mutex.h"
#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/fingerprint.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/job_page.h"
#include "rank_board.h"

namespace dtrun::collectives {

/// What records say of an operation's group. Ranks are global.
struct RecordedGroup {
  /// @param board that shows the group's operations to local peers; attached to the record. null:
  /// none does
  RecordedGroup(std::string name, int group_rank, const std::vector<int>& global_ranks,
                const RankBoard* board = nullptr);

  std::string name;
  std::int32_t rank;  ///< own, in the group
  std::int32_t size;
  std::int32_t first_rank;
  std::int32_t rank_stride;  ///< between neighbours; 0: it is not the same everywhere
  std::uint32_t members_hash = 0;
  const RankBoard* board;
  const std::uint64_t number;  ///< no other group of this process has it
};

class RankRecord {
 public:
  enum class Outcome { done, failed };

  /// @param job_page may be null
  RankRecord(std::shared_ptr<rendezvous::JobPage> job_page, int local_rank);

  /// The board shows what this rank does in the groups that name it, until detach().
  void attach(RankBoard& board);
  void detach(RankBoard& board);

  /// @return the operation's number, for end()
  std::uint64_t begin(const Fingerprint& fingerprint, const RecordedGroup& group,
                      std::uint64_t bytes);
  /// For an operation that is about to be over: as begin(), but passed() or go_on() must follow at
  /// once. @param started_ns when it began; 0: now
  std::uint64_t pass(const Fingerprint& fingerprint, const RecordedGroup& group,
                     std::uint64_t bytes, std::int64_t started_ns = 0);
  /// The same of a batch of messages, whose sends are over already, and for which nothing is to
  /// follow. @param batch not empty @return the first receive's number; the others follow in their
  /// order
  std::uint64_t pass(std::span<const ShortMessage> batch, const RecordedGroup& group,
                     std::int64_t started_ns);
  /// It was not over.
  void go_on(std::uint64_t number);
  /// Whether the job is traced, so that the times are to be exact.
  bool is_exact() const { return is_exact_; }
  /// Of an operation that pass() has told of: it is over now. Two moves where the page shows when
  /// it began in place of when it ended, as it does unless the job is traced.
  void passed(std::uint64_t number) {
    if (slot_ == nullptr) return;
    if (slot_->passing.load(std::memory_order_relaxed) != number) return write_end(number);
    slot_->passing.store(0, std::memory_order_release);
  }
  void waiting_for(std::uint64_t number, int global_rank);
  void end(std::uint64_t number, Outcome outcome);
  /// A rank of another node waits in that operation, to which this one has not come.
  void set_awaited(const Fingerprint& fingerprint, const RecordedGroup& group, int by_global_rank);
  /// None waits in an operation of that group any more, or none that this one has not come to.
  void end_awaited(const RecordedGroup& group);
  /// This rank fails because of that one.
  void set_victim_of(int global_rank);
  /// Of the newest operation, on whichever board.
  BoardLine line();

 private:
  struct Shown;
  using ToldNumber = std::uint32_t;
  /// What the records say alike of the calls of one place in a program: all but the sequence, the
  /// times and the bytes. Texts are written once, and copied as a block in each call.
  struct Told {
    Fingerprint print;        ///< its sequence means nothing
    std::uint64_t group = 0;  ///< RecordedGroup::number; 0: nothing yet
    ToldNumber number = 0;    ///< no other one has it
    Shown* shown = nullptr;   ///< on whose board
    std::size_t next = 0;     ///< among told_: what came after it the last time
    rendezvous::HistoryEntry entry;
  };
  /// The last ones of a loop of a few calls.
  static constexpr std::size_t kTold = 8;
  [[gnu::always_inline]] const Told& told_of(const Fingerprint& fingerprint,
                                             const RecordedGroup& group);
  Told& find_told(const Fingerprint& fingerprint, const RecordedGroup& group);
  void tell(Told& told, const Fingerprint& fingerprint, const RecordedGroup& group);
  void forget_told() { told_.fill({}); }
  /// Of an operation.
  struct Times {
    std::int64_t started_ns;
    std::int64_t ended_ns;  ///< as the board has it
    std::int64_t page_end;  ///< as the page has it
  };
  [[gnu::always_inline]] void write(const Fingerprint& fingerprint, const RecordedGroup& group,
                                    std::uint64_t bytes, const Times& times);
  /// On its board, as the newest one.
  [[gnu::always_inline]] void write_line(const Told& told, const Fingerprint& fingerprint,
                                         const RecordedGroup& group, const Times& times);
  /// On the page.
  [[gnu::always_inline]] void write_entries(const Told& told, std::uint64_t sequence,
                                            std::uint64_t bytes, const Times& times);
  void write_end(std::uint64_t number);
  void set_state(rendezvous::RankState state);
  void show_awaited();
  std::int64_t now_ns() const;
  /// What a board shows. Peers look for this rank on the board of the world in which they wait for
  /// it, and a rank may have many worlds: each operation is written to one of them.
  struct Shown {
    RankBoard* board = nullptr;  ///< null: of groups without one
    BoardLine line;
    std::uint64_t number = 0;  ///< of its operation
    ToldNumber told = 0;       ///< of what the line was made
    void write() const {
      if (board != nullptr) board->write(line);
    }
  };
  Shown& shown_on(const RankBoard* board);
  /// null: there have been others since.
  Shown* shown_of(std::uint64_t number);
  /// Changes what both rings say of that operation, where they still do.
  template <typename Change>
  void update(std::uint64_t number, Change change);

  struct Awaited {
    std::uint64_t group;  ///< RecordedGroup::number
    OpKind kind;
    std::uint64_t sequence;
    std::string group_name;
    int by;
    std::int64_t since_ns;
  };

  const std::shared_ptr<rendezvous::JobPage> job_page_;
  rendezvous::RankSlot* slot_ = nullptr;
  std::span<rendezvous::HistoryEntry> history_;
  bool is_exact_ = false;
  base::QuickMutex mutex_;
  std::vector<Awaited> awaited_;
  std::uint64_t begun_ = 0;
  std::size_t next_entry_ = 0;  ///< of the history
  // Of what the entries of both rings were made, which need not be written again for another call
  // of the same place; 0: something else has been written to it.
  std::array<ToldNumber, rendezvous::kOperationRing> told_in_ring_{};
  std::vector<ToldNumber> told_in_history_;
  std::array<Told, kTold> told_;
  Told* newest_told_ = told_.data();
  ToldNumber told_count_ = 0;
  int active_ = 0;
  std::list<Shown> shown_{1};  ///< the first is that of groups without a board
  Shown* newest_ = &shown_.front();
};

/// The one that the options name, or a new one of this rank's.
std::shared_ptr<RankRecord> record_of(const GroupOptions& options);

}  // namespace dtrun::collectives
