// CallCard: what every two ranks of a group exchange before a collective of an adapter. Pure.
#pragma once

#include <cstdint>
#include <type_traits>

#include "dtrun/collectives/fingerprint.h"

namespace dtrun::collectives::adapter {

struct CallCard {
  static constexpr std::uint64_t kCall = 0x6c6c6143;      // "Call"
  static constexpr std::uint64_t kFarewell = 0x65796279;  // "ybye": the sender leaves the group

  std::uint64_t kind = kCall;
  std::uint64_t bytes_to_reader = 0;
  std::uint64_t bytes_from_reader = 0;  ///< that the writer expects
  Fingerprint fingerprint;
};
static_assert(sizeof(CallCard) == 88);
static_assert(std::is_trivially_copyable_v<CallCard>);

/// What stands before a message's payload.
struct MessageCard {
  std::uint64_t bytes = 0;
  std::uint32_t number = 0;  ///< the payload's tag: of the sender's messages to the reader
  std::uint32_t reserved = 0;
  Fingerprint fingerprint;
};
static_assert(sizeof(MessageCard) == 80);

}  // namespace dtrun::collectives::adapter
