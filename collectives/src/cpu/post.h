// Post: what a rank shows the members of its group about one collective: its fingerprint and, where
// they are few, its bytes. It lies in the group's table; everybody else only reads it. A rank has a
// ring of posts for each lane of a group and uses them in turn. What a reader needs of a small
// collective lies in one cache line; the call site, which only a message about a disagreement
// needs, lies in the next one, which stays with its writer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dtrun/collectives/fingerprint.h"

namespace dtrun::collectives::cpu {

/// Posts carry fingerprints, and these are compared, in every build that is used. What that costs
/// can be measured without (docs/benchmarks.md).
#ifdef DTRUN_UNCHECKED_CALLS
inline constexpr bool kChecksCalls = false;
#else
inline constexpr bool kChecksCalls = true;
#endif

/// Turns count a group's collectives that go by posts, modulo 2^32. The first one lies shortly
/// before the end of the numbers, so that every longer run goes around it.
using Turn = std::uint32_t;
inline constexpr Turn kFirstTurn = 0xffffff00;

/// How many turns a rank may be ahead of the last one: of short collectives. The long ones meet.
inline constexpr Turn kAhead = 64;
inline constexpr Turn kBulkAhead = 1;
/// A rank that is ahead writes other posts than those that the last rank still reads.
constexpr Turn posts_of(Turn ahead) {
  return 2 * ahead;
}
inline constexpr Turn kMostPosts = posts_of(kAhead);
static_assert((kMostPosts & (kMostPosts - 1)) == 0, "numbers of turns go around");

/// What all members must show alike. It has no padding: it is compared as bytes.
struct PostHead {
  std::uint32_t before = 0;  ///< hash of all collectives of the lane before this one
  std::byte fingerprint[offsetof(Fingerprint, site)] = {};

  void tell(std::uint32_t hash_before, const Fingerprint& print) {
    before = hash_before;
    std::memcpy(fingerprint, &print, sizeof(fingerprint));
  }
  bool operator==(const PostHead& other) const {
    return std::memcmp(this, &other, sizeof(PostHead)) == 0;
  }
};

struct alignas(128) Post {
  static constexpr std::size_t kInline = 24;  ///< what is left of the line, for any element
  static constexpr std::uint16_t kInMessages = 0xffff;

  std::atomic<Turn> turn{0};  ///< stored last
  PostHead head;
  std::uint16_t place = 0;   ///< in the rank's PayloadRing, in lines, of more bytes than kInline
  std::uint16_t parcel = 0;  ///< of parts that the rank gives: how long each is, or kInMessages
  alignas(8) std::byte payload[kInline] = {};  ///< of up to kInline bytes, or laid_pieces()
  char site[sizeof(Fingerprint::site)] = {};

  void show(const PostHead& shown, const Fingerprint& print) {
    head = shown;
    // Cores fetch lines in pairs: a reader of this one has got the next one, too, and each write to
    // it would take it back. Of a loop's calls it says the same as kMostPosts turns ago.
    if (std::memcmp(site, print.site, sizeof(site)) != 0)
      std::memcpy(site, print.site, sizeof(site));
  }
  /// Of a payload in pieces, which lies elsewhere: how many of them are there.
  std::atomic_ref<std::uint32_t> laid_pieces() {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(payload));
  }
  Fingerprint fingerprint() const {
    Fingerprint result;
    std::memcpy(static_cast<void*>(&result), head.fingerprint, sizeof(head.fingerprint));
    std::memcpy(result.site, site, sizeof(site));
    return result;
  }
};
static_assert(sizeof(PostHead) == 32);
static_assert(sizeof(Post) == 128);
static_assert(offsetof(Post, site) == 64 && offsetof(Post, payload) % 8 == 0);

}  // namespace dtrun::collectives::cpu
