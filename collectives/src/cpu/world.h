// World: what one rank shares among all groups that stem from one ProcessGroup::create: its heap,
// the memory of the ranks of its machine, the control connections to the others, and the watcher
// thread, which sleeps in epoll until a connection has something to say, a peer that somebody waits
// for dies, or a socket is ready on which a sleeper waits. Ranks that share memory have no
// connection: what one has to say lies in that memory. Groups hold it by shared_ptr; the last one
// says goodbye to the peers. Ranks in here are world ranks: places in the member list of that
// create(). Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "channel.h"
#include "commons_door.h"
#include "connection_count.h"
#include "control_connection.h"
#include "cpu_share.h"
#include "data_hello.h"
#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/base/spare_fd.h"
#include "dtrun/collectives/process_group.h"
#include "fork_mark.h"
#include "group_block.h"
#include "group_failure.h"
#include "heap.h"
#include "lifelines.h"
#include "membership.h"
#include "own_cpu.h"
#include "pause.h"
#include "peer_memory.h"
#include "progress_thread.h"
#include "rank_record.h"
#include "tensor_heap.h"

namespace dtrun::collectives::cpu {

enum class Route { self, shared_memory, tcp };

/// What a group wants to hear. Called on the watcher thread, for one group never at the same time.
class GroupListener {
 public:
  virtual ~GroupListener() = default;
  virtual void on_frame(int world_rank, const Frame& frame) = 0;
  /// A data connection from that rank has come.
  virtual void on_data_connection(int world_rank, const DataHello& hello, base::UniqueFd fd) = 0;
  virtual void on_member_lost(int world_rank, const base::Error& error) = 0;
  /// This rank can watch its peers no longer.
  virtual void on_trouble(const base::Error& error) = 0;
};

class World : public std::enable_shared_from_this<World> {
 public:
  /// Collective over the members. @throws Error kTimeout naming who is missing
  static std::shared_ptr<World> create(const GroupOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(cards_.size()); }
  const Card& card(int world_rank) const { return cards_[static_cast<std::size_t>(world_rank)]; }
  Route route(int world_rank) const;
  bool shares_memory(int world_rank) const { return route(world_rank) != Route::tcp; }
  /// Every two of them share memory, as all of them know.
  bool all_linked(const std::vector<int>& world_ranks) const;

  // Memory of those with whom this rank shares it; its own, too.
  const Cell& cell(int world_rank) const { return door_.commons().cell(world_rank); }
  Doorbell& doorbell(int world_rank) { return door_.commons().cell(world_rank).doorbell; }
  Doorbell& doorbell() { return doorbell(rank_); }
  /// What lies there in that rank's heap, which is mapped when it is first asked for.
  /// @throws Error kSystem
  std::byte* at(int world_rank, Offset offset);
  /// Of a rank with whom this one shares a heap; null: it cannot be read from here, or shall not.
  const PeerMemory* memory_of(int world_rank);
  GroupTable& root_table() const { return door_.commons().root_table(); }
  Heap& heap() { return heap_; }
  /// Made when it is first asked for; the spans of the machine's other ranks are mapped, too.
  /// @throws Error kSystem
  std::shared_ptr<TensorHeap> tensor_heap();
  /// Where that memory of this rank's lies among its tensors in shared memory, for the others'
  /// tensor_at(); nullopt: it does not.
  std::optional<Offset> shared_offset_of(const void* data) const;
  /// Among that rank's, which are mapped when they are first asked for. @throws Error kSystem
  const std::byte* tensor_at(int world_rank, Offset offset);

  /// A block for a group, and its table where this rank is the one that keeps it; with posts where
  /// all members share memory.
  enum class Keeps { block, table, table_with_posts };
  GroupMemory make_group_memory(std::size_t members, Keeps keeps);
  /// Equal on all ranks: the first group's block is the first in every heap.
  GroupMemory root_memory() const { return root_memory_; }
  /// Memory of a group that this rank has left; used anew once all its local members have departed.
  struct Retired {
    GroupMemory memory;
    std::vector<Offset> rings;
    GroupTable* table;
    std::uint64_t generation;
    std::uint32_t local_members;
  };
  void retire(Retired retired);
  RankRecord& record() { return *record_; }
  ProgressThread& progress_thread() { return progress_thread_; }

  // Groups.
  /// What came early for the group is delivered before this returns.
  void add_group(std::uint64_t id, GroupListener& group);
  /// When this returns, the group is not called any more.
  void remove_group(std::uint64_t id);
  /// To a rank that shares no memory with this one.
  void send(int world_rank, const Frame& frame);
  /// Somebody waits for that rank: its death is to be told. For ranks that share memory. Of those
  /// that were asked for last, kMostWatched are watched; those before, whenever they are asked for.
  /// @throws Error kSystem
  static constexpr std::size_t kMostWatched = Lifelines::kMost;
  void watch_peer(int world_rank);
  /// How many data connections a channel to that rank may have.
  ConnectionCount connections_to(int world_rank);
  /// A data socket towards that rank, still connecting.
  /// @throws Error kConnection, kSystem
  base::UniqueFd connect_data(int world_rank);
  /// What goes out first on a connection of this rank's.
  DataHello make_hello(ConnectionKind kind, std::uint64_t group, Lane lane) const;
  /// An epoll instance of a group's data sockets, for ring_when_ready(). @throws Error kSystem
  void watch_ready(int epoll);
  /// The remedy where epoll fails.
  static constexpr const char* kLeaveThemOpen =
      "let the program close no descriptors that it has not opened";
  /// The doorbell rings once, as soon as that instance has something to tell.
  /// @throws Error kSystem
  void ring_when_ready(int epoll);

  // Waiting.
  /// Sleeps until the doorbell rings, the job is aborted, or the deadline.
  void await_ring(std::uint32_t ticket, base::Deadline until);
  /// Set once the launcher has aborted the job.
  std::optional<GroupFailure> job_failure() const;
  Crowding crowding() const { return crowding_; }
  /// Between two polls. @param look how often the caller has polled in vain
  void pause(int look) {
    if (yields_between_looks(look, crowding_)) [[unlikely]]
      return yield_core(look);
    pause_between_looks(look, crowding_);
  }
  /// Whether that rank would come on if this one yielded, as far as can be seen: it has yielded on
  /// this core, or sleeps. One that runs elsewhere comes on by itself. A hint.
  bool wants_core(int world_rank) const;
  /// Which the ranks of this machine have together: the same on all of them.
  int cores() const { return cores_; }
  const CostTable& costs() const { return costs_; }
  /// This process was forked from the rank, and is not it.
  bool in_child() const { return fork_mark_.in_child(); }
  /// "in all_reduce #41 ... for 2.1 s, waiting for rank 0"; where that is known.
  std::optional<std::string> whereabouts(int world_rank);
  /// That rank's process, or its world, has ended, as far as can be told now.
  bool has_ended(int world_rank);
  /// The global rank because of which that one has failed, as far as is known; -1: none.
  int victim_of(int world_rank);
  void store_status(int world_rank, const BoardLine& line);
  /// What that rank has said last of itself.
  std::optional<BoardLine> status(int world_rank);

 private:
  struct Peer {
    std::unique_ptr<CommonsSpan> heap;           ///< guarded by mutex_
    std::unique_ptr<CommonsSpan> tensors;        ///< guarded by mutex_
    std::unique_ptr<PeerMemory> memory;          ///< guarded by mutex_
    bool memory_was_tried = false;               ///< guarded by mutex_
    std::shared_ptr<ControlConnection> control;  ///< guarded by mutex_
    bool said_goodbye = false;                   ///< watcher thread only
    bool lost = false;                           ///< watcher thread only
    std::optional<BoardLine> status;             ///< guarded by mutex_; times as ages when it came
    std::int64_t status_at_ns = 0;
  };
  World(const GroupOptions& options, base::Deadline deadline);
  void join(const GroupOptions& options, base::Deadline deadline);
  void listen(const GroupOptions& options, Card& mine);
  void connect_control(base::Deadline deadline);
  /// A host that is gone sends no FIN; after this long without an answer it counts as gone.
  static constexpr base::Deadline::Duration kHostPatience = std::chrono::seconds(60);
  void tend_data(int fd) const;
  /// Called under mutex_.
  const CommonsSpan& tensors_of(int world_rank);
  std::shared_ptr<ControlConnection> control(int world_rank);
  void set_control(int world_rank, base::UniqueFd fd);
  void reuse_retired();
  std::optional<Offset> reuse_table(std::size_t bytes);

  // The watcher thread.
  void start_watcher();
  void stop_watcher();
  void wake_watcher();
  void watch();
  template <typename Act>
  void guard(const Act& act);
  void handle(std::uint64_t tag, bool& data);
  bool try_to_watch(int fd, std::uint32_t events, std::uint64_t tag);
  void watch_fd(int fd, std::uint32_t events, std::uint64_t tag);
  void on_wake();
  bool on_listener();
  bool hear(std::uint64_t tag, std::uint32_t events);
  void stop_hearing(std::uint64_t tag);
  void hear_again();
  void on_pending(int fd);
  /// Not in line: few waits are so long, and the short way is.
  [[gnu::cold, gnu::noinline]] void yield_core(int look);
  void on_control(int world_rank);
  void on_lost(int world_rank);
  void judge_losses();
  void on_trouble(const base::Error& error);
  /// The launcher that watches this rank watches that one.
  bool on_job_page(int world_rank) const;
  base::Error describe_loss(int world_rank);
  void deliver(std::uint64_t group, std::function<void(GroupListener&)> event);

  const std::string name_;
  const int rank_;
  const base::Deadline::Duration timeout_;
  const SingleCopy single_copy_;
  const int connections_per_peer_;  ///< 0: by the round trip
  const CostTable costs_;
  std::vector<Card> cards_;
  std::vector<Route> routes_;
  std::shared_ptr<rendezvous::JobPage> job_page_;
  CommonsDoor door_;
  Heap heap_;
  std::shared_ptr<TensorHeap> tensor_heap_;                     ///< guarded by mutex_
  std::atomic<const TensorHeap*> known_tensor_heap_ = nullptr;  ///< the same, for calls
  GroupMemory root_memory_;
  bool joined_ = false;
  const std::shared_ptr<RankRecord> record_;
  std::vector<Peer> peers_;
  Crowding crowding_ = Crowding::alone;
  OwnCpu own_cpu_{door_.commons(), rank_};
  int cores_ = 1;
  const ForkMark fork_mark_;

  base::UniqueFd epoll_;
  base::UniqueFd wake_event_;
  base::UniqueFd listener_;
  base::SpareFd spare_;  ///< watcher thread only
  /// Accepted connections that have not said who they are; more than this are strangers'.
  static constexpr std::size_t kMostPending = 1024;
  std::deque<int> pending_order_;          ///< by age; watcher thread only
  std::map<int, base::UniqueFd> pending_;  ///< accepted, silent so far; watcher thread only
  Lifelines lifelines_;                    ///< watcher thread only
  /// Door or listener, where nobody could be let in, and until when; watcher thread only.
  std::map<std::uint64_t, base::Deadline> unheard_;
  /// Dead ranks whose cause the launcher may still tell, and until when; watcher thread only.
  std::map<int, base::Deadline> unexplained_;

  std::mutex mutex_;
  std::condition_variable peer_connected_;
  std::vector<Retired> retired_;  ///< guarded by mutex_
  struct Table {
    Offset offset;
    std::size_t bytes;
    bool in_use;
  };
  std::vector<Table> tables_;           ///< of this rank's heap; guarded by mutex_
  std::uint64_t table_generation_ = 1;  ///< guarded by mutex_
  std::set<int> to_watch_;              ///< guarded by mutex_
  bool stopping_ = false;               ///< guarded by mutex_

  /// Guards what follows; held while a listener is called.
  std::mutex groups_mutex_;
  std::map<std::uint64_t, GroupListener*> groups_;
  std::set<std::uint64_t> finished_groups_;
  /// What came for groups that this rank has not made yet.
  std::map<std::uint64_t, std::vector<std::function<void(GroupListener&)>>> early_;
  std::vector<std::pair<int, base::Error>> losses_;
  std::optional<base::Error> trouble_;

  std::mutex watcher_mutex_;  ///< guards the thread's start
  std::thread watcher_;
  ProgressThread progress_thread_;
};

}  // namespace dtrun::collectives::cpu
