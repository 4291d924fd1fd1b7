// Ring: a byte queue in shared memory with one producer and one consumer. It lies in the producer's
// heap; each side keeps its position in a cache line of its own and a private copy of the other's,
// so that a line moves between cores only when something is new.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "channel.h"
#include "doorbell.h"

namespace dtrun::collectives::cpu {

struct RingHeader {
  std::uint64_t capacity = 0;  ///< a power of two; the bytes follow the header
  alignas(128) std::atomic<std::uint64_t> written{0};
  alignas(128) std::atomic<std::uint64_t> read{0};

  std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
};

constexpr std::size_t ring_bytes(std::size_t capacity) {
  return sizeof(RingHeader) + capacity;
}

class RingSendChannel : public SendChannel {
 public:
  /// @param ring in this rank's heap; @param peer the consumer's doorbell
  RingSendChannel(RingHeader& ring, Doorbell& peer) : ring_(ring), peer_(peer) {}
  std::size_t write(Bytes first, Bytes second) override;

 private:
  std::size_t put(Bytes bytes);

  RingHeader& ring_;
  Doorbell& peer_;
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;  ///< as last seen
};

class RingReceiveChannel : public ReceiveChannel {
 public:
  /// @param ring in the producer's heap; @param peer the producer's doorbell
  RingReceiveChannel(RingHeader& ring, Doorbell& peer) : ring_(ring), peer_(peer) {}
  std::size_t read(std::span<std::byte> target) override;
  bool empty() const override { return ring_.written.load(std::memory_order_seq_cst) == read_; }

 private:
  RingHeader& ring_;
  Doorbell& peer_;
  std::uint64_t written_ = 0;  ///< as last seen
  std::uint64_t read_ = 0;
};

}  // namespace dtrun::collectives::cpu
