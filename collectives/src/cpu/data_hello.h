// DataHello: the first bytes on every TCP connection between two ranks, from the side that
// connected.
#pragma once

#include <cstdint>

#include "channel.h"

namespace dtrun::collectives::cpu {

enum class ConnectionKind : std::uint8_t { control, data };

struct DataHello {
  static constexpr std::uint64_t kMagic = 0x326f6c6548757274;  // "truHelo2"

  std::uint64_t magic = kMagic;
  std::uint64_t token = 0;  ///< the world's: keeps strangers out
  std::uint64_t group = 0;  ///< group id; data only
  std::int32_t rank = 0;    ///< world rank of the side that connected
  ConnectionKind kind = ConnectionKind::control;
  Lane lane = Lane::prompt;      ///< data only
  std::uint8_t connection = 0;   ///< of those of the channel; data only
  std::uint8_t connections = 1;  ///< how many it can have; data only
};
static_assert(sizeof(DataHello) == 32);

}  // namespace dtrun::collectives::cpu
