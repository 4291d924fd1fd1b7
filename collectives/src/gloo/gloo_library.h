// GlooLibrary: one group's gloo context. A rank that fails puts its reason into the store and then
// breaks its connections. A rank whose connection breaks looks for a reason in the store; without
// one the peer has died. A thread per group, the watch, does this, because gloo wakes nobody when a
// peer dies during a receive from any rank. Thread-safe as MessageLibrary says.
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "adapter/message_library.h"

namespace dtrun::collectives::gloo_backend {

using adapter::MessageInFlight;
using adapter::MessageKind;
using UnboundBuffer = ::gloo::transport::UnboundBuffer;
using Device = std::shared_ptr<::gloo::transport::Device>;

/// gloo's device: listens on the group's address; its thread does the group's I/O.
Device make_device(const GroupOptions& options);

class GlooLibrary : public adapter::MessageLibrary {
 public:
  /// Collective over the members. @throws Error
  GlooLibrary(const GroupOptions& options, Device device, base::Deadline deadline);
  ~GlooLibrary() override;

  std::string name() const override { return "gloo"; }
  std::unique_ptr<MessageInFlight> send(const void* data, std::size_t bytes, int peer,
                                        MessageKind kind, std::uint32_t tag) override;
  std::unique_ptr<MessageInFlight> receive(void* data, std::size_t bytes, int peer,
                                           MessageKind kind, std::uint32_t tag) override;
  std::uint32_t largest_tag() const override { return 0xffffffff; }

  void broadcast(Buffer buffer, int source, base::Deadline deadline) override;
  void all_reduce(Buffer buffer, tensors::CombineOp op, base::Deadline deadline) override;
  void reduce(Buffer input, Buffer output, int destination, tensors::CombineOp op,
              base::Deadline deadline) override;
  std::unique_ptr<adapter::MessageLibrary> split(const GroupOptions& child,
                                                 const std::vector<int>& ranks, int list_index,
                                                 base::Deadline deadline) override;

  void fail(const GroupFailure& failure) override;
  void leave() override;
  base::Deadline::Duration patience() const override { return std::chrono::seconds(2); }
  /// Kept until the connections are broken: gloo's thread spins for ever on data that arrives for a
  /// buffer that was destroyed earlier.
  void keep(std::shared_ptr<void> buffers) override;

  struct Awaited {
    int peer = -1;                      ///< -1: any, or all
    UnboundBuffer* from_any = nullptr;  ///< of a receive from any rank, which gloo does not wake
    base::Deadline deadline;
  };
  /// Runs a blocking call of gloo, and turns its exception into an Error.
  /// @param wait returns the peer; -1: it was woken without a message
  int await(const std::function<int()>& wait, const Awaited& awaited);

 private:
  using Verdict = std::variant<adapter::PeerLost, adapter::GroupFailed>;

  void stop(const std::string& word);
  void break_connections();
  void watch();
  bool watch_once(std::set<int>& watched);
  bool settle(int peer);
  std::optional<std::string> word_of(int peer);
  std::vector<int> broken(const std::set<int>& peers);
  [[noreturn]] void throw_reason(const Awaited& awaited, const std::string& gloo_says);
  void throw_if_none_can_send();
  void wake_receives_from_any();

  const std::shared_ptr<rendezvous::Store> store_;
  const int rank_;
  const int size_;
  const Device device_;
  std::shared_ptr<::gloo::rendezvous::Context> context_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Verdict> verdict_;
  std::set<int> left_;
  std::set<UnboundBuffer*> from_any_;  ///< that are waited for
  UnboundBuffer* watched_buffer_ = nullptr;
  bool stopped_ = false;
  bool broken_ =
      false;  ///< the connections, by this rank: gloo's thread touches no buffer any more
  std::vector<std::shared_ptr<void>> kept_;
  std::thread watch_;
};

}  // namespace dtrun::collectives::gloo_backend
