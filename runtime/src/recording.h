// Recording: the calls of an open dist::Coalesce. Each function of dist:: that starts something in
// a group asks recording_of(group) first.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "current_world.h"
#include "dtrun/runtime/dist.h"

namespace dtrun::dist {

/// A call that begins when its scope ends, and is the operation from then on.
class RecordedCall : public Work::State {
 public:
  /// @throws Error kUsage before the scope's end, and what the call was dropped with
  void wait(base::Deadline deadline) override;
  bool is_completed() override;
  std::exception_ptr exception() override;
  int source_rank() override;

  static void begin(const std::shared_ptr<RecordedCall>& call, const Work& work);
  /// It will never begin, which is its end. Nothing where it has begun.
  void drop(const std::exception_ptr& error);

 private:
  /// What is known now. It is asked outside of the lock: an operation that is asked may carry on
  /// others, and call what waits for them.
  struct Known {
    bool has_begun;
    Work work;
    std::exception_ptr dropped;
  };
  Known known();
  void end_with(const std::exception_ptr& error);

  std::mutex mutex_;
  bool has_begun_ = false;
  Work work_;
  std::exception_ptr dropped_;
};

class Recording {
 public:
  using Start = std::function<Work(const OpOptions& options)>;

  Recording(ProcessGroup group, Site site);  ///< opens it on this thread
  ~Recording() { close(); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  /// From now on calls are carried out. On the thread that opened it.
  void close();
  /// @throws Error kUsage on another thread than the one that opened it
  void require_own_thread() const;

  /// @param start makes the same call again @throws Error kUsage where the kind is not that of the
  /// other calls
  Work record(collectives::OpKind kind, OpOptions options, Start start);
  /// @throws Error kUsage, kInvalidArgument for a timeout, which a batch has no place for
  Work record(const P2POp& message, const MessageOptions& options);
  [[noreturn]] void refuse(const char* call) const;

  /// Starts all. @throws what one throws; the others are dropped with it
  Work start_all();
  void drop(const std::exception_ptr& error);
  /// Leaves nobody in doubt: aborts the group, unless there are no calls.
  void abort_group() noexcept;

  const ProcessGroup& group() const { return group_; }
  Recording* outer() const { return outer_; }

 private:
  void require(collectives::OpKind kind) const;
  std::vector<Work> start_each();
  std::string name() const;  ///< "dist::Coalesce at train.cc:12 in group 'world'"

  struct Call {
    OpOptions options;
    Start start;
  };
  const ProcessGroup group_;
  const Site site_;
  Recording* outer_;
  const std::thread::id thread_ = std::this_thread::get_id();
  bool open_ = true;
  collectives::OpKind kind_ = collectives::OpKind::none;  ///< send: messages of both directions
  std::vector<Call> calls_;
  std::vector<P2POp> messages_;
  std::vector<std::shared_ptr<RecordedCall>> given_;  ///< one for each of these
};

/// The last that this thread has opened and not closed.
extern constinit thread_local Recording* innermost_recording;

/// The scope that lists this thread's calls in that group; null: they are carried out.
Recording* find_recording(const ProcessGroup& group);
inline Recording* recording_of(const ProcessGroup& group) {
  return innermost_recording == nullptr ? nullptr : find_recording(group);
}

/// For calls that a scope cannot list. @throws Error kUsage where one is open in the group
inline void require_no_recording(const ProcessGroup& group, const char* call) {
  if (const Recording* recording = recording_of(group)) recording->refuse(call);
}

}  // namespace dtrun::dist
