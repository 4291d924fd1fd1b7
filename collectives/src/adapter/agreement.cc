// How the ranks of an AdapterBackend's group agree before a collective, and move its pieces.
#include <cstring>

#include "adapter/adapter_backend.h"

namespace dtrun::collectives::adapter {

using base::Deadline;

namespace {

using Messages = std::vector<std::unique_ptr<MessageInFlight>>;

/// The messages of one exchange, and the cards that they carry where it is about cards. When the
/// exchange fails it is handed to the library whole, which alone knows when it touches nothing of
/// it any more.
struct Exchange {
  explicit Exchange(std::size_t size) : ours(size), theirs(size), receives(size), sends(size) {}
  std::vector<CallCard> ours;
  std::vector<CallCard> theirs;
  Messages receives;  ///< destroyed before what they write to
  Messages sends;
};

/// Collects who has not come by the deadline.
class Absent {
 public:
  bool has_come(int peer, MessageInFlight& message, Deadline deadline) {
    try {
      message.wait(deadline);
      return true;
    } catch (const Late&) {
    } catch (...) {
      // Once one is late the library may have given up the connections to the others, too.
      if (peers_.empty()) throw;
    }
    peers_.push_back(peer);
    return false;
  }
  void throw_if_any() const {
    if (!peers_.empty()) throw Late{peers_};
  }

 private:
  std::vector<int> peers_;
};

void wait_for_all(const Messages& messages, Deadline deadline) {
  Absent absent;
  for (std::size_t peer = 0; peer < messages.size(); ++peer)
    if (messages[peer]) absent.has_come(static_cast<int>(peer), *messages[peer], deadline);
  absent.throw_if_any();
}

void compare(int peer, const CallCard& ours, const CallCard& theirs) {
  if (theirs.kind == CallCard::kFarewell) throw PeerLeft{peer};
  std::optional<UnequalBytes> bytes;
  if (theirs.bytes_to_reader != ours.bytes_from_reader) {
    bytes = {theirs.bytes_to_reader, ours.bytes_from_reader, true};
  } else if (ours.bytes_to_reader != theirs.bytes_from_reader) {
    bytes = {ours.bytes_to_reader, theirs.bytes_from_reader, false};
  }
  if (!ours.fingerprint.agrees_with(theirs.fingerprint) || bytes)
    throw Disagreement{peer, theirs.fingerprint, ours.fingerprint, bytes};
}

}  // namespace

void AdapterBackend::agree(const Fingerprint& fingerprint, const Pieces& inputs,
                           const Pieces& outputs, Deadline deadline) {
  if (size() == 1) return;
  const auto exchange = std::make_shared<Exchange>(members_.size());
  try {
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      const std::size_t index = static_cast<std::size_t>(peer);
      exchange->receives[index] =
          library_->receive(&exchange->theirs[index], sizeof(CallCard), peer, MessageKind::call, 0);
      exchange->ours[index] = {CallCard::kCall, inputs[index].bytes(), outputs[index].bytes(),
                               fingerprint};
      exchange->sends[index] =
          library_->send(&exchange->ours[index], sizeof(CallCard), peer, MessageKind::call, 0);
    }
    Absent absent;
    for (std::size_t peer = 0; peer < members_.size(); ++peer)
      if (exchange->receives[peer] &&
          absent.has_come(static_cast<int>(peer), *exchange->receives[peer], deadline))
        compare(static_cast<int>(peer), exchange->ours[peer], exchange->theirs[peer]);
    absent.throw_if_any();
    wait_for_all(exchange->sends, deadline);
  } catch (...) {
    library_->keep(exchange);
    throw;
  }
}

void AdapterBackend::transfer(const Pieces& inputs, const Pieces& outputs, Deadline deadline) {
  const auto exchange = std::make_shared<Exchange>(members_.size());
  try {
    for (int step = 0; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      const std::size_t index = static_cast<std::size_t>(peer);
      const Buffer& input = inputs[index];
      const Buffer& output = outputs[index];
      if (peer == rank()) {
        if (output.count > 0 && output.data != input.data)
          std::memmove(output.data, input.data, output.bytes());
        continue;
      }
      if (output.count > 0)
        exchange->receives[index] =
            library_->receive(output.data, output.bytes(), peer, MessageKind::data, 0);
      if (input.count > 0)
        exchange->sends[index] =
            library_->send(input.data, input.bytes(), peer, MessageKind::data, 0);
      bytes_received_ += output.bytes();
      bytes_sent_ += input.bytes();
    }
    wait_for_all(exchange->receives, deadline);
    wait_for_all(exchange->sends, deadline);
  } catch (...) {
    library_->keep(exchange);
    throw;
  }
}

// Whoever is in a call meets the farewell in the call card's place, and so learns it at once.
void AdapterBackend::say_farewell() {
  const Deadline deadline = Deadline::after(library_->patience());
  if (size() == 1 || deadline.expired()) return;
  const auto exchange = std::make_shared<Exchange>(members_.size());
  // The farewell of one that does not leave yet does not come.
  library_->keep(exchange);
  try {
    for (std::size_t peer = 0; peer < members_.size(); ++peer) {
      if (static_cast<int>(peer) == rank()) continue;
      exchange->ours[peer].kind = CallCard::kFarewell;
      exchange->receives[peer] = library_->receive(&exchange->theirs[peer], sizeof(CallCard),
                                                   static_cast<int>(peer), MessageKind::call, 0);
      exchange->sends[peer] = library_->send(&exchange->ours[peer], sizeof(CallCard),
                                             static_cast<int>(peer), MessageKind::call, 0);
    }
    wait_for_all(exchange->receives, deadline);
    wait_for_all(exchange->sends, deadline);
  } catch (...) {
    // Somebody is busy, has left before, or has died: this rank leaves all the same.
  }
}

}  // namespace dtrun::collectives::adapter
