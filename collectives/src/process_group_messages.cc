// The messages of a ProcessGroup between two ranks, and what is made of them.
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/collectives/process_group.h"
#include "group_call.h"
#include "short_call.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;

namespace {

struct Address {
  OpKind kind;
  int peer;
  std::uint32_t tag;
};

void require_address(const GroupShape& group, const Address& address) {
  const bool sends = address.kind == OpKind::send;
  if (sends || address.peer != -1)
    require_rank(group, address.peer, sends ? "destination" : "source");
  if (address.peer == group.rank)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {} cannot {} itself", group.rank,
                            sends ? "send a message to" : "receive a message from"),
                "messages are between two ranks", "copy the tensor instead");
  if (address.tag > ProcessGroup::kLastTag)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the tag {} is the group's own", address.tag), "",
                fmt::format("use tags up to {}", ProcessGroup::kLastTag));
}

/// What is known of a message that a batch has received before its call returned: it is the same of
/// all that come from a rank of that number. Two looks at the clock would take a seventh of the
/// call's time.
class ReceivedAtOnce final : public Work::State {
 public:
  explicit ReceivedAtOnce(int source) : State(kUntimed), source_(source) {
    (void)settle(nullptr, nullptr);
  }
  void wait(base::Deadline) override {}
  bool is_completed() override { return true; }
  std::exception_ptr exception() override { return nullptr; }
  int source_rank() override { return source_; }

 private:
  static constexpr Clock::time_point kUntimed{};
  const int source_;
};

/// Of the first ranks they are made once and stay, uncounted: a count is two atomic additions.
Work received_at_once(int source) {
  constexpr std::size_t kFirst = 64;
  static const std::vector<std::unique_ptr<ReceivedAtOnce>>& first = *[] {
    auto* const made = new std::vector<std::unique_ptr<ReceivedAtOnce>>();
    for (std::size_t rank = 0; rank < kFirst; ++rank)
      made->push_back(std::make_unique<ReceivedAtOnce>(static_cast<int>(rank)));
    return made;
  }();
  const auto place = static_cast<std::size_t>(source);
  if (place >= kFirst) return Work(std::make_shared<ReceivedAtOnce>(source));
  return Work(std::shared_ptr<Work::State>(std::shared_ptr<void>(), first[place].get()));
}

/// One message's call: checked, then over at once or started.
class MessageCall {
 public:
  MessageCall(GroupCore& core, const LocalTensor& tensor, const Address& address,
              const CallOptions& options, const ProcessGroup::Site& site)
      : call_(core, address.kind, options, site),
        short_call_(core.meter(), address.kind),
        tensor_(tensor),
        address_(address) {
    call_.check(tensor, "the tensor",
                [&](const GroupShape& group) { require_address(group, address); });
    call_.print.counts = static_cast<std::uint64_t>(tensor.numel());
    call_.print.root = address.peer;
    call_.print.shape = address.tag;
    call_.show([&] {
      return address.kind == OpKind::send ? static_cast<std::int64_t>(tensor.bytes()) : 0;
    });
  }

  Backend& backend() { return call_.backend(); }
  bool can_be_short() const { return tensor_.is_contiguous(); }
  ShortMessage as_short() {
    return {call_.print, buffer_of(tensor_), address_.peer, address_.tag, short_call_};
  }
  /// It was over at once.
  void end() {
    short_call_.succeed();
    call_.end_now();
  }
  /// The same of one of a batch.
  Work end_in_batch() {
    end();
    // There is nothing to know of a send.
    return address_.kind == OpKind::send ? Work() : received_at_once(address_.peer);
  }
  Message as_message() {
    Message message{address_.kind, {}, address_.peer, address_.tag, {}};
    message.buffer = address_.kind == OpKind::send ? call_.buffers().input(tensor_)
                                                   : call_.buffers().output(tensor_);
    message.call = call_.take(message.buffer.bytes());
    return message;
  }

 private:
  GroupCall call_;
  ShortCall short_call_;
  const LocalTensor& tensor_;
  const Address address_;
};

Work start(GroupCore& core, const LocalTensor& tensor, const Address& address,
           const CallOptions& options, const ProcessGroup::Site& site) {
  MessageCall call(core, tensor, address, options, site);
  return call.backend().start(call.as_message());
}

/// @return the rank that it came from or went to
int run(GroupCore& core, const LocalTensor& tensor, const Address& address,
        const CallOptions& options, const ProcessGroup::Site& site) {
  if (options.async) {
    CallOptions blocking = options;
    blocking.async = false;
    return run(core, tensor, address, blocking, site);
  }
  MessageCall call(core, tensor, address, options, site);
  if (call.can_be_short()) {
    ShortMessage message = call.as_short();
    call.backend().exchange_now({&message, 1});
    if (message.is_done) {
      call.end();
      return address.peer;
    }
  }
  return call.backend().start(call.as_message()).source_rank();
}

/// Elements that stay where they are made, in the order of their making. A few need no allocation.
template <typename T>
class Row {
 public:
  explicit Row(std::size_t most)
      : memory_(most <= kFew ? reinterpret_cast<T*>(few_) : std::allocator<T>().allocate(most)),
        most_(most) {}
  ~Row() {
    while (size_ > 0) std::destroy_at(memory_ + --size_);
    if (most_ > kFew) std::allocator<T>().deallocate(memory_, most_);
  }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  template <typename... Arguments>
  void add(Arguments&&... arguments) {
    std::construct_at(memory_ + size_, std::forward<Arguments>(arguments)...);
    ++size_;
  }
  std::span<T> all() { return {memory_, size_}; }

 private:
  static constexpr std::size_t kFew = 2;  ///< a send and a receive
  alignas(T) std::byte few_[kFew * sizeof(T)];
  T* const memory_;
  const std::size_t most_;
  std::size_t size_ = 0;
};

/// Those that are not over at once. @param works of all
void start_rest(std::span<MessageCall> calls, std::span<const ShortMessage> shown,
                std::vector<Work>& works) {
  std::vector<Message> messages;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (i < shown.size() && shown[i].is_done) {
      works[i] = calls[i].end_in_batch();
      continue;
    }
    messages.push_back(calls[i].as_message());
    places.push_back(i);
  }
  if (messages.empty()) return;
  std::vector<Work> started = calls.front().backend().exchange(std::move(messages));
  for (std::size_t i = 0; i < started.size(); ++i) works[places[i]] = std::move(started[i]);
}

}  // namespace

void ProcessGroup::send(const LocalTensor& tensor, int destination, std::uint32_t tag,
                        const CallOptions& options, Site site) const {
  run(core(), tensor, {OpKind::send, destination, tag}, options, site);
}

int ProcessGroup::recv(const LocalTensor& tensor, int source, std::uint32_t tag,
                       const CallOptions& options, Site site) const {
  return run(core(), tensor, {OpKind::receive, source, tag}, options, site);
}

Work ProcessGroup::isend(const LocalTensor& tensor, int destination, std::uint32_t tag,
                         CallOptions options, Site site) const {
  options.async = true;
  return start(core(), tensor, {OpKind::send, destination, tag}, options, site);
}

Work ProcessGroup::irecv(const LocalTensor& tensor, int source, std::uint32_t tag,
                         CallOptions options, Site site) const {
  options.async = true;
  return start(core(), tensor, {OpKind::receive, source, tag}, options, site);
}

std::vector<Work> ProcessGroup::batch_isend_irecv(const std::vector<P2POp>& operations,
                                                  Site site) const {
  const CallOptions options{.async = true};
  Row<MessageCall> row(operations.size());
  // None is started before all are checked.
  for (const P2POp& operation : operations) {
    const OpKind kind = operation.kind == P2POp::Kind::send ? OpKind::send : OpKind::receive;
    row.add(core(), operation.tensor, Address{kind, operation.peer, operation.tag}, options, site);
    if (&row.all().front().backend() != &row.all().back().backend())
      throw Error(ErrorCode::kInvalidArgument,
                  "the tensors of a batch of messages are on different devices", "",
                  "make one batch per device");
  }
  const std::span<MessageCall> calls = row.all();
  std::vector<Work> works(calls.size());
  Row<ShortMessage> shown(calls.size());
  const auto can_be_short = [](const MessageCall& call) { return call.can_be_short(); };
  if (std::ranges::all_of(calls, can_be_short) && !calls.empty()) {
    for (MessageCall& call : calls) shown.add(call.as_short());
    calls.front().backend().exchange_now(shown.all());
  }
  start_rest(calls, shown.all(), works);
  return works;
}

}  // namespace dtrun::collectives
