// Ring: a byte queue in shared memory with one producer and one consumer. Payloads that it cannot
// hold are lent: the consumer fetches them out of the producer's memory and counts them as
// returned. A producer that fails says so (withdrawn) before it lets go of that memory, and the
// consumer asks after each copy. It lies in the producer's heap; each side keeps its position in a
// cache line of its own and a private copy of the other's, so that a line moves between cores only
// when something is new.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "channel.h"
#include "doorbell.h"
#include "letter.h"
#include "peer_memory.h"
#include "shared_copy.h"

namespace dtrun::collectives::cpu {

struct RingHeader {
  /// How many bytes the producer has written, each time that it has. It uses the marks in turn: a
  /// line that the consumer has just read would first have to be taken back from its cache.
  struct alignas(128) Mark {
    std::atomic<std::uint64_t> written{0};
    std::atomic<std::uint32_t> number{0};  ///< counts what was told, from 1; stored last
    // Of a letter these are told instead, and what stands behind them once its bytes are there.
    std::atomic<std::uint32_t> letter_number{0};  ///< as `number`; first one of another mark
    std::atomic<std::uint64_t> letter_end{0};     ///< what `written` will be
    std::atomic<std::uint64_t> letter_head{0};
    std::atomic<std::uint64_t> letter_payload[Letter::kWords] = {};
    // The consumer seldom looks at this line, so that it stays with the producer.
    std::atomic<std::uint64_t> letter_written{0};  ///< as `written`
    std::atomic<std::uint32_t> letter_filled{0};   ///< as `number`
  };
  static_assert(offsetof(Mark, letter_written) == 64, "what a letter's reader needs is one line");
  static constexpr std::uint32_t kMarks = 8;
  static_assert((kMarks & (kMarks - 1)) == 0, "numbers go around");
  /// Told as a number and as a letter's, of each mark once in so many numbers: what a mark has not
  /// told for half of all numbers would look as if it were still to be heard.
  static constexpr std::uint32_t kToldBothWays = std::uint32_t{1} << 28;
  static bool is_told_both_ways(std::uint32_t number) { return number % kToldBothWays < kMarks; }

  std::uint64_t capacity = 0;  ///< a power of two; the bytes follow the header
  Mark marks[kMarks];
  alignas(128) std::atomic<std::uint32_t> withdrawn{0};  ///< 1: the producer's lent payloads are no
                                                         ///< more
  alignas(128) std::atomic<std::uint64_t> read{0};
  std::atomic<std::uint64_t> returned{0};  ///< lent payloads that the consumer has fetched
  std::atomic<std::uint32_t> fetches{0};   ///< 1: the consumer can read the producer's memory

  std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
  Mark& mark(std::uint32_t number) { return marks[number % kMarks]; }
};

constexpr std::size_t ring_bytes(std::size_t capacity) {
  return sizeof(RingHeader) + capacity;
}

class RingSendChannel : public SendChannel {
 public:
  /// @param ring in this rank's heap; @param peer the consumer's doorbell @param least_lent of
  /// fewer bytes no message is lent whose sender says nothing else; 0: what the ring cannot hold
  /// @param told how often it is as if the ring had told already; the receiver's `heard`
  RingSendChannel(RingHeader& ring, Doorbell& peer, std::size_t least_lent = 0,
                  std::uint32_t told = 0)
      : ring_(ring),
        peer_(peer),
        least_lent_(least_lent == 0 ? ring.capacity : least_lent),
        told_(told) {}
  std::size_t write(Bytes first, Bytes second) override;
  void write_letter(const Letter& letter, Bytes message) override;
  void wake() override { peer_.ring_sleepers(); }
  bool has_room(std::size_t bytes) override;
  bool can_lend(Bytes payload) const override;
  std::size_t least_lent() const override { return least_lent_; }
  std::uint64_t lend() override { return ++lent_; }
  bool is_returned(std::uint64_t number) const override {
    return ring_.returned.load(std::memory_order_seq_cst) >= number;
  }
  void withdraw() override { ring_.withdrawn.store(1, std::memory_order_seq_cst); }

 private:
  std::size_t put(Bytes bytes);
  void copy(std::byte* to, Bytes bytes);
  void touch_until(std::uint64_t end);
  void tell_written();
  void claim_next_lines() const;
  void claim_next_mark() const;

  RingHeader& ring_;
  Doorbell& peer_;
  const std::size_t least_lent_;
  std::uint64_t written_ = 0;
  std::uint32_t told_;      ///< the last mark's number
  std::uint64_t read_ = 0;  ///< as last seen
  std::uint64_t lent_ = 0;
  std::uint64_t touched_ = 0;  ///< so far pages of the ring are there; the most once all are
  SharedCopy copies_;
};

class RingReceiveChannel : public ReceiveChannel {
 public:
  /// @param ring in the producer's heap; @param peer the producer's doorbell; @param memory the
  /// producer's, if it can be read
  /// @param heard how often it is as if the ring had told already
  RingReceiveChannel(RingHeader& ring, Doorbell& peer, const PeerMemory* memory = nullptr,
                     std::uint32_t heard = 0)
      : ring_(ring), peer_(peer), memory_(memory), heard_(heard) {
    ring.fetches.store(memory == nullptr ? 0 : 1, std::memory_order_release);
  }
  std::size_t read(std::span<std::byte> target) override;
  std::size_t most_at_once() const override;
  bool has(std::size_t bytes) override;
  const std::byte* front(std::size_t bytes) override;
  const Letter* see_letter() override;
  void drop_letter() override;
  void read_behind(std::size_t shown, std::span<std::byte> target) override;
  std::size_t fetch(std::span<std::byte> target, std::uint64_t address) override;
  void give_back() override;
  bool broken() const override { return broken_; }
  bool empty() const override;

 private:
  /// Takes what the next mark says, if it is there. More may lie behind it.
  bool hear_written();
  /// Whether that mark's number has not been heard.
  bool is_news(std::uint32_t number) const {
    return static_cast<std::int32_t>(number - heard_) > 0;
  }
  /// The producer learns it once it is worth while.
  void note_read(std::size_t bytes);

  RingHeader& ring_;
  Doorbell& peer_;
  const PeerMemory* const memory_;
  std::uint64_t written_ = 0;  ///< as last seen
  std::uint32_t heard_;        ///< the last mark's number
  std::uint64_t read_ = 0;
  std::uint64_t published_ = 0;  ///< of what is read, what the producer knows
  Letter seen_;                  ///< the last that see_letter() has shown
  bool broken_ = false;          ///< the producer has ended, or withdrawn a payload
};

}  // namespace dtrun::collectives::cpu
