#include "gloo/gloo_library.h"

#include <fmt/core.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/store.h"
#include "gloo/held_pipe_signal.h"
#include "quiet_thread.h"

namespace dtrun::collectives::gloo_backend {

using adapter::GroupFailed;
using adapter::Interrupted;
using adapter::Late;
using adapter::PeerLeft;
using adapter::PeerLost;
using base::Deadline;
using base::Error;
using base::ErrorCode;
using std::chrono::milliseconds;

namespace {

// Our Store, as gloo wants one for its rendezvous. Every wait keeps to one deadline.
class GlooStore : public ::gloo::rendezvous::Store {
 public:
  GlooStore(std::shared_ptr<rendezvous::Store> store, base::Deadline deadline)
      : store_(std::move(store)), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_->set(prefixed(key), {data.data(), data.size()});
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_->get(prefixed(key), deadline_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    std::vector<std::string> ours;
    for (const std::string& key : keys) ours.push_back(prefixed(key));
    store_->wait(ours, deadline_);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  static std::string prefixed(const std::string& key) { return "gloo/context/" + key; }

  const std::shared_ptr<rendezvous::Store> store_;
  const base::Deadline deadline_;
};

// gloo's own collectives do not use the highest 16 bits of a slot.
constexpr int kKindShift = 56;
constexpr std::uint64_t kWatchSlot = std::uint64_t{0x80} << kKindShift;
constexpr std::uint64_t kProbeSlot = std::uint64_t{0x81} << kKindShift;

/// A failing rank writes its reason to the store before it breaks its connections. Only when gloo's
/// own timeout breaks them first does the reason come later: wait this long for it.
constexpr auto kWordGrace = milliseconds(250);
constexpr char kLeft = 'L';
constexpr char kFailed = 'F';

std::uint64_t slot_of(MessageKind kind, std::uint32_t tag) {
  return (static_cast<std::uint64_t>(kind) + 1) << kKindShift | tag;
}

/// In ms, rounded up; never 0, which gloo refuses, and small enough not to overflow its clock.
milliseconds gloo_timeout(Deadline deadline) {
  constexpr milliseconds kLongest = std::chrono::hours(24 * 30);
  const auto left = deadline.remaining();
  if (left >= kLongest) return kLongest;
  return std::chrono::duration_cast<milliseconds>(left) + milliseconds(1);
}

class GlooMessage : public MessageInFlight {
 public:
  enum class Way { out, in };
  GlooMessage(GlooLibrary& library, std::unique_ptr<UnboundBuffer> buffer, Way way, int peer)
      : library_(library), buffer_(std::move(buffer)), way_(way), peer_(peer) {}

  int wait(Deadline deadline) override {
    UnboundBuffer* from_any = peer_ < 0 ? buffer_.get() : nullptr;
    return library_.await(
        [&] {
          int peer = -1;
          const bool done = way_ == Way::out ? buffer_->waitSend(&peer, gloo_timeout(deadline))
                                             : buffer_->waitRecv(&peer, gloo_timeout(deadline));
          return done ? peer : -1;
        },
        {peer_, from_any, deadline});
  }

 private:
  GlooLibrary& library_;
  const std::unique_ptr<UnboundBuffer> buffer_;
  const Way way_;
  const int peer_;
};

std::string word_key(int rank) {
  return fmt::format("gloo/word/{}", rank);
}

}  // namespace

Device make_device(const GroupOptions& options) {
  ::gloo::transport::tcp::attr where;
  where.hostname = options.address.empty() ? "127.0.0.1" : options.address;
  // Checked first: gloo leaks the result of its address lookup if it cannot listen.
  try {
    base::listen_tcp(where.hostname, 0);
  } catch (const Error& error) {
    throw Error(ErrorCode::kConnection, fmt::format("gloo cannot listen on {}", where.hostname),
                error.what(), "the address must be one of this machine's");
  }
  Device device;
  std::exception_ptr error;
  // gloo's thread inherits the signal mask of the thread that makes the device.
  start_quiet_thread("dtrun-gloo", [&] {
    try {
      device = ::gloo::transport::tcp::CreateDevice(where);
    } catch (const std::exception& gloo_says) {
      error = std::make_exception_ptr(
          Error(ErrorCode::kConnection, fmt::format("gloo cannot listen on {}", where.hostname),
                gloo_says.what(), "the address must be one of this machine's"));
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return device;
}

GlooLibrary::GlooLibrary(const GroupOptions& options, Device device, Deadline deadline)
    : store_(options.store),
      rank_(options.rank),
      size_(static_cast<int>(options.global_ranks.size())),
      device_(std::move(device)),
      context_(std::make_shared<::gloo::rendezvous::Context>(rank_, size_)) {
  if (size_ == 1) return;
  // gloo waits five times as long for a connection as it is told to.
  context_->setTimeout(std::max(gloo_timeout(deadline) / 5, milliseconds(1)));
  GlooStore store(store_, deadline);
  Device device_in_use = device_;
  const HeldPipeSignal held;
  try {
    context_->connectFullMesh(store, device_in_use);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& gloo_says) {
    throw Error(deadline.expired() ? ErrorCode::kTimeout : ErrorCode::kConnection,
                fmt::format("the ranks of group '{}' cannot be connected by gloo", options.name),
                gloo_says.what(),
                "every rank must be reachable at the address that it has towards the store");
  }
  watch_ = start_quiet_thread("dtrun-gloo-watch", [this] { watch(); });
}

GlooLibrary::~GlooLibrary() {
  leave();
  if (watch_.joinable()) watch_.join();
}

// ---- messages and collectives

std::unique_ptr<MessageInFlight> GlooLibrary::send(const void* data, std::size_t bytes, int peer,
                                                   MessageKind kind, std::uint32_t tag) {
  // gloo's buffers are for both ways, and so never const.
  std::unique_ptr<UnboundBuffer> buffer =
      context_->createUnboundBuffer(const_cast<void*>(data), bytes);
  await([&] { return buffer->send(peer, slot_of(kind, tag)), peer; },
        {peer, nullptr, Deadline::never()});
  return std::make_unique<GlooMessage>(*this, std::move(buffer), GlooMessage::Way::out, peer);
}

std::unique_ptr<MessageInFlight> GlooLibrary::receive(void* data, std::size_t bytes, int peer,
                                                      MessageKind kind, std::uint32_t tag) {
  std::unique_ptr<UnboundBuffer> buffer = context_->createUnboundBuffer(data, bytes);
  std::vector<int> sources = {peer};
  if (peer < 0) {
    sources.clear();
    for (int source = 0; source < size_; ++source)
      if (source != rank_) sources.push_back(source);
  }
  const auto post = [&] {
    if (peer < 0) {
      buffer->recv(sources, slot_of(kind, tag));
    } else {
      buffer->recv(peer, slot_of(kind, tag));
    }
    return 0;
  };
  await(post, {peer, nullptr, Deadline::never()});
  return std::make_unique<GlooMessage>(*this, std::move(buffer), GlooMessage::Way::in, peer);
}

namespace {

/// Elements of one size, by which gloo's options are templates.
template <typename Use>
void with_element_of(std::size_t bytes, Use use) {
  if (bytes == 1) return use(std::uint8_t{});
  if (bytes == 2) return use(std::uint16_t{});
  if (bytes == 4) return use(std::uint32_t{});
  use(std::uint64_t{});
}

auto reduction(tensors::CombineOp op, tensors::DType dtype) {
  return [op, dtype](void* output, const void* a, const void* b, std::size_t count) {
    const void* inputs[] = {a, b};
    tensors::combine_all(op, dtype, output, inputs, 2, static_cast<std::int64_t>(count));
  };
}

std::size_t count_of(const Buffer& buffer) {
  return static_cast<std::size_t>(buffer.count);
}

}  // namespace

void GlooLibrary::broadcast(Buffer buffer, int source, Deadline deadline) {
  ::gloo::BroadcastOptions options(context_);
  options.setOutput(static_cast<std::uint8_t*>(buffer.data), buffer.bytes());
  options.setRoot(source);
  options.setTimeout(gloo_timeout(deadline));
  await([&] { return ::gloo::broadcast(options), 0; }, {-1, nullptr, deadline});
}

void GlooLibrary::all_reduce(Buffer buffer, tensors::CombineOp op, Deadline deadline) {
  ::gloo::AllreduceOptions options(context_);
  with_element_of(tensors::item_size(buffer.dtype), [&](auto element) {
    options.setOutput(static_cast<decltype(element)*>(buffer.data), count_of(buffer));
  });
  options.setReduceFunction(reduction(op, buffer.dtype));
  options.setTimeout(gloo_timeout(deadline));
  await([&] { return ::gloo::allreduce(options), 0; }, {-1, nullptr, deadline});
}

void GlooLibrary::reduce(Buffer input, Buffer output, int destination, tensors::CombineOp op,
                         Deadline deadline) {
  ::gloo::ReduceOptions options(context_);
  with_element_of(tensors::item_size(input.dtype), [&](auto element) {
    options.setInput(static_cast<decltype(element)*>(input.data), count_of(input));
    options.setOutput(static_cast<decltype(element)*>(output.data), count_of(output));
  });
  options.setReduceFunction(reduction(op, input.dtype));
  options.setRoot(destination);
  options.setTimeout(gloo_timeout(deadline));
  await([&] { return ::gloo::reduce(options), 0; }, {-1, nullptr, deadline});
}

std::unique_ptr<adapter::MessageLibrary> GlooLibrary::split(const GroupOptions& child,
                                                            const std::vector<int>& ranks, int,
                                                            Deadline deadline) {
  if (ranks.empty()) return nullptr;
  return std::make_unique<GlooLibrary>(child, device_, deadline);
}

int GlooLibrary::await(const std::function<int()>& wait, const Awaited& awaited) {
  const HeldPipeSignal held;
  const struct Registered {
    GlooLibrary& library;
    UnboundBuffer* buffer;
    Registered(GlooLibrary& of, UnboundBuffer* from_any) : library(of), buffer(from_any) {
      const std::scoped_lock lock(library.mutex_);
      if (buffer != nullptr) library.from_any_.insert(buffer);
    }
    ~Registered() {
      const std::scoped_lock lock(library.mutex_);
      library.from_any_.erase(buffer);
    }
  } registered(*this, awaited.from_any);
  for (;;) {
    if (awaited.from_any != nullptr) throw_if_none_can_send();
    try {
      const int peer = wait();
      if (peer >= 0) return peer;
    } catch (const std::exception& gloo_says) {
      throw_reason(awaited, gloo_says.what());
    }
  }
}

// ---- failing and leaving

void GlooLibrary::throw_reason(const Awaited& awaited, const std::string& gloo_says) {
  std::vector<int> peers;
  if (awaited.peer >= 0) peers.push_back(awaited.peer);
  std::unique_lock lock(mutex_);
  const auto known = [this] { return stopped_ || verdict_ || !left_.empty(); };
  if (!known() && awaited.deadline.expired()) throw Late{peers};
  changed_.wait_for(lock, 4 * kWordGrace, known);
  if (stopped_) throw Interrupted{};
  if (verdict_) std::visit([](const auto& verdict) { throw verdict; }, *verdict_);
  if (!left_.empty()) throw PeerLeft{*left_.begin()};
  throw Error(ErrorCode::kConnection, "gloo gave up", gloo_says, "look at the other ranks' output");
}

void GlooLibrary::throw_if_none_can_send() {
  const std::scoped_lock lock(mutex_);
  if (stopped_) throw Interrupted{};
  if (verdict_) std::visit([](const auto& verdict) { throw verdict; }, *verdict_);
  if (left_.size() + 1 == static_cast<std::size_t>(size_)) throw PeerLeft{*left_.begin()};
}

void GlooLibrary::wake_receives_from_any() {
  for (UnboundBuffer* buffer : from_any_) buffer->abortWaitRecv();
}

void GlooLibrary::fail(const GroupFailure& failure) {
  stop(kFailed + failure.encode());
}

void GlooLibrary::leave() {
  stop(std::string(1, kLeft));
}

void GlooLibrary::stop(const std::string& word) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    changed_.notify_all();
    wake_receives_from_any();
    if (watched_buffer_ != nullptr) watched_buffer_->abortWaitRecv();
  }
  if (size_ == 1) return;
  try {
    store_->set(word_key(rank_), word);
  } catch (const Error&) {
    // The store's host has gone. The others will report this rank as dead, which is the best left.
  }
  break_connections();
  std::vector<std::shared_ptr<void>> untouched;
  const std::scoped_lock lock(mutex_);
  broken_ = true;
  untouched.swap(kept_);
}

void GlooLibrary::keep(std::shared_ptr<void> buffers) {
  const std::scoped_lock lock(mutex_);
  if (!broken_) kept_.push_back(std::move(buffers));
}

// gloo's close() wakes no waiting thread. A timeout wakes all waits of this rank and closes its
// connections, which wakes the peers.
void GlooLibrary::break_connections() {
  try {
    context_->createUnboundBuffer(nullptr, 0)->waitRecv(nullptr, milliseconds(1));
  } catch (const std::exception&) {
    // The timeout that this call asks for.
  }
}

void GlooLibrary::watch() {
  std::set<int> watched;
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) watched.insert(peer);
  while (!watched.empty() && watch_once(watched)) {
  }
}

// A buffer waits for a message that no peer ever sends: the wait ends when a connection ends.
bool GlooLibrary::watch_once(std::set<int>& watched) {
  const std::shared_ptr<UnboundBuffer> buffer = context_->createUnboundBuffer(nullptr, 0);
  // Several connections may end at once; each of them ends one wait.
  keep(buffer);
  {
    const std::scoped_lock lock(mutex_);
    if (stopped_) return false;
    watched_buffer_ = buffer.get();
  }
  try {
    for (const int peer : watched) buffer->recv(peer, kWatchSlot);
    buffer->waitRecv(nullptr, gloo_timeout(Deadline::never()));
  } catch (const std::exception&) {
    // Which peer it was is found out below.
  }
  {
    const std::scoped_lock lock(mutex_);
    watched_buffer_ = nullptr;
    if (stopped_) return false;
  }
  for (const int peer : broken(watched)) {
    if (!settle(peer)) return false;
    watched.erase(peer);
  }
  return true;
}

std::vector<int> GlooLibrary::broken(const std::set<int>& peers) {
  const std::shared_ptr<UnboundBuffer> buffer = context_->createUnboundBuffer(nullptr, 0);
  keep(buffer);
  std::vector<int> found;
  for (const int peer : peers) {
    try {
      buffer->recv(peer, kProbeSlot);
    } catch (const std::exception&) {
      found.push_back(peer);
    }
  }
  return found;
}

/// @return whether the group goes on
bool GlooLibrary::settle(int peer) {
  const std::optional<std::string> word = word_of(peer);
  const std::scoped_lock lock(mutex_);
  if (stopped_) return false;
  if (!word) {
    verdict_ = PeerLost{peer};
  } else if (word->front() == kLeft) {
    left_.insert(peer);
  } else {
    verdict_ = GroupFailed{GroupFailure::decode(word->substr(1))};
  }
  changed_.notify_all();
  wake_receives_from_any();
  return !verdict_;
}

std::optional<std::string> GlooLibrary::word_of(int peer) {
  try {
    return store_->get(word_key(peer), Deadline::after(kWordGrace));
  } catch (const Error&) {
    // No reason came in time, or the store has gone.
    return std::nullopt;
  }
}

}  // namespace dtrun::collectives::gloo_backend
