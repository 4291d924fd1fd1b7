// MpiLibrary: one group's MPI communicator. All calls are non-blocking ones, asked again and again
// until they are done, the deadline has passed, or the group is over: MPI moves data only while it
// is asked. Whoever fails or leaves tells the others by a message, the alarm, for which each rank
// has a receive from any; whoever waits looks for it. Thread-safe as MessageLibrary says.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "adapter/message_library.h"
#include "mpi/mpi_process.h"

namespace dtrun::collectives::mpi {

using adapter::MessageInFlight;
using adapter::MessageKind;
using Requests = std::vector<MPI_Request>;

class MpiLibrary : public adapter::MessageLibrary {
 public:
  /// @param communicator of this group alone, not empty
  MpiLibrary(MpiProcess& process, MPI_Comm communicator);
  ~MpiLibrary() override;

  std::string name() const override { return "mpi"; }
  std::unique_ptr<MessageInFlight> send(const void* data, std::size_t bytes, int peer,
                                        MessageKind kind, std::uint32_t tag) override;
  std::unique_ptr<MessageInFlight> receive(void* data, std::size_t bytes, int peer,
                                           MessageKind kind, std::uint32_t tag) override;
  std::uint32_t largest_tag() const override;

  void broadcast(Buffer buffer, int source, base::Deadline deadline) override;
  void all_reduce(Buffer buffer, tensors::CombineOp op, base::Deadline deadline) override;
  void reduce(Buffer input, Buffer output, int destination, tensors::CombineOp op,
              base::Deadline deadline) override;
  std::unique_ptr<adapter::MessageLibrary> split(const GroupOptions& child,
                                                 const std::vector<int>& ranks, int list_index,
                                                 base::Deadline deadline) override;

  void fail(const GroupFailure& failure) override;
  void leave() override;
  /// MPI delivers what is on its way also when its sender has left: until the process's end.
  base::Deadline::Duration patience() const override { return {}; }
  void keep(std::shared_ptr<void> buffers) override { process_.keep(std::move(buffers)); }

  static constexpr int kAnyPeer = -1;
  static constexpr int kAllPeers = -2;  ///< of a collective: one of them may be through, and leave
  /// @return the peer that the last of the requests was with
  int await(Requests& requests, int peer, base::Deadline deadline);

 private:
  using Part = std::function<int(std::byte* data, int count, MPI_Request* request)>;
  using Time = base::Deadline::Clock::time_point;
  class Pace;

  void collective(Buffer buffer, const char* call, base::Deadline deadline, const Part& begin);
  int tag_of(MessageKind kind, std::uint32_t tag) const;
  void stop(const std::string& word, MpiProcess::End end);
  void tell_all(const std::string& word);
  void listen();
  void hear();
  void note(int peer, const std::string& word);
  void throw_if_over(int peer);

  MpiProcess& process_;
  const MpiApi& api_;
  const MPI_Comm communicator_;
  int rank_ = -1;
  int size_ = 0;

  std::mutex hearing_;
  MPI_Request alarm_;
  const std::shared_ptr<std::vector<char>> alarm_text_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::optional<GroupFailure> verdict_;
  std::map<int, Time> left_;  ///< who, and when this rank has heard of it
};

}  // namespace dtrun::collectives::mpi
