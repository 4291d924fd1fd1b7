#include "proof/hmac_sha256.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace dtrun::rendezvous {
namespace {

constexpr std::size_t kBlockBytes = 64, kLengthBytes = 8;

using Digest = std::array<unsigned char, 32>;
using KeyBlock = std::array<unsigned char, kBlockBytes>;

// FIPS 180-4, 4.2.2: of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

// 5.3.3: of the square roots of the first 8 primes.
constexpr std::array<std::uint32_t, 8> kFirstState = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

class Sha256 {
 public:
  void add(std::string_view bytes) {
    length_ += bytes.size();
    while (!bytes.empty()) {
      const std::size_t count = std::min(bytes.size(), kBlockBytes - filled_);
      std::memcpy(block_.data() + filled_, bytes.data(), count);
      bytes.remove_prefix(count);
      filled_ += count;
      if (filled_ == kBlockBytes) mix();
    }
  }

  // A one bit, zeros up to the last 8 bytes of a block, and there the length in bits.
  Digest finish() {
    const std::uint64_t bits = length_ * 8;
    add(std::string_view("\x80", 1));
    const std::size_t end = kBlockBytes - kLengthBytes;
    const std::string_view zeros(kZeros.data(), kZeros.size());
    add(zeros.substr(0, (end + kBlockBytes - filled_) % kBlockBytes));
    std::array<char, kLengthBytes> tail;
    for (std::size_t i = 0; i < kLengthBytes; ++i)
      tail[i] = static_cast<char>(bits >> (8 * (kLengthBytes - 1 - i)));
    add({tail.data(), tail.size()});
    Digest digest;
    for (std::size_t i = 0; i < digest.size(); ++i)
      digest[i] = static_cast<unsigned char>(state_[i / 4] >> (8 * (3 - i % 4)));
    return digest;
  }

 private:
  static constexpr std::array<char, kBlockBytes> kZeros{};

  // 6.2.2: the block becomes a part of the state.
  void mix() {
    filled_ = 0;
    std::array<std::uint32_t, 64> words;
    for (std::size_t i = 0; i < 16; ++i)
      words[i] = static_cast<std::uint32_t>(block_[4 * i]) << 24 |
                 static_cast<std::uint32_t>(block_[4 * i + 1]) << 16 |
                 static_cast<std::uint32_t>(block_[4 * i + 2]) << 8 | block_[4 * i + 3];
    for (std::size_t i = 16; i < words.size(); ++i) {
      const std::uint32_t early = words[i - 15], late = words[i - 2];
      words[i] = words[i - 16] + words[i - 7] +
                 (std::rotr(early, 7) ^ std::rotr(early, 18) ^ early >> 3) +
                 (std::rotr(late, 17) ^ std::rotr(late, 19) ^ late >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                  ((e & f) ^ (~e & g)) + kRoundConstants[i] + words[i];
      const std::uint32_t second =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
    }
    const std::array<std::uint32_t, 8> mixed = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < state_.size(); ++i) state_[i] += mixed[i];
  }

  std::array<std::uint32_t, 8> state_ = kFirstState;
  KeyBlock block_;
  std::size_t filled_ = 0;
  std::uint64_t length_ = 0;
};

Digest sha256(std::string_view first, std::string_view second) {
  Sha256 sha;
  sha.add(first);
  sha.add(second);
  return sha.finish();
}

template <std::size_t kSize>
std::string_view as_text(const std::array<unsigned char, kSize>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

KeyBlock key_block(std::string_view key, unsigned char mask) {
  KeyBlock block{};
  std::memcpy(block.data(), key.data(), key.size());
  for (unsigned char& byte : block) byte ^= mask;
  return block;
}

}  // namespace

Digest hmac_sha256(std::string_view secret, std::string_view message) {
  Digest short_key;
  if (secret.size() > kBlockBytes) {
    short_key = sha256(secret, {});
    secret = as_text(short_key);
  }
  const Digest inner = sha256(as_text(key_block(secret, 0x36)), message);
  return sha256(as_text(key_block(secret, 0x5c)), as_text(inner));
}

}  // namespace dtrun::rendezvous
