// The load that store_bench puts on a server: one thread, raw sockets, epoll. Speaks the modern
// dialect; to the echo server it says how long questions and answers are, and then sends the same
// bytes. An answer that is wrong or does not come in 120 s ends the program.
#pragma once

#include <cstddef>

#include "store_contender.h"

namespace dtrun::bench {

/// Operations a second: each of 100 connections sends `in_flight` times SET, WAIT and GET at once,
/// reads all answers, and sends again.
double operations_per_second(const StoreContender& server, int in_flight, double seconds);

/// Median microseconds of a PING and its answer, by one at a time of `connections`.
double round_trip_us(const StoreContender& server, int connections, int trips);

/// Seconds until `count` new connections have their first answer (VALIDATE and PING).
double connect_seconds(const StoreContender& server, int count);

/// What those who wait do with the packet that releases them.
enum class Acknowledge {
  kAtOnce,  ///< by a packet of its own, which the server's CPU also carries: as PyTorch's clients
  kWhenTheyAsk,  ///< with their next request: as dtrun's
};

/// Milliseconds from a SET until the answer to the last of `count` connections that wait for it has
/// come to its socket, by the kernel's time stamps: reading them one after another is not the
/// server's affair.
double release_ms(const StoreContender& server, int count, Acknowledge acknowledge);

/// Milliseconds for a MULTI_GET of `count` keys with values of eight bytes; median of `times`.
double multi_get_ms(const StoreContender& server, int count, int times);

/// Bytes by which the server's resident memory grows for each connection that has spoken and is
/// idle.
double bytes_per_idle_connection(const StoreContender& server);

}  // namespace dtrun::bench
