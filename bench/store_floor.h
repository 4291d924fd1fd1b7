// What the machine takes for a round trip whoever serves: two processes that exchange four bytes
// over one connection, each in a blocking call, and do nothing else.
#pragma once

namespace dtrun::bench {

enum class Cores { kAsTheyCome, kOne };

/// Median microseconds of `trips`.
double bare_round_trip_us(int trips, Cores cores);

}  // namespace dtrun::bench
