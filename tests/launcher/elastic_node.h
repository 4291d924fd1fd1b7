// What tests of elastic jobs share: the ranks are workers/elastic_worker, and say where they are.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <ostream>
#include <string>

#include "dtrun/rendezvous/tcp_store.h"
#include "support/command.h"

namespace dtrun::launcher {

inline const std::string kWorker = DTRUN_WORKERS "/elastic_worker";

/// What a rank says about itself.
struct Place {
  int rank = -1, world = -1, node = -1, nodes = -1, restart = -1, budget = -1, pid = -1, port = 0;
  std::string host = "";

  friend bool operator==(const Place& a, const Place& b) {
    return a.rank == b.rank && a.world == b.world && a.node == b.node && a.nodes == b.nodes &&
           a.restart == b.restart;
  }
  friend void PrintTo(const Place& place, std::ostream* out) {
    *out << "rank " << place.rank << " of " << place.world << ", node " << place.node << " of "
         << place.nodes << ", restart " << place.restart;
  }
};

/// Of the next rank of this node that speaks; of none when it has ended.
inline Place next_place(testing_support::Command& node) {
  Place place;
  const auto line = node.next_line("rank ");
  if (!line) return place;
  char host[65] = "";
  std::sscanf(line->c_str(),
              "rank %d of %d, node %d of %d, restart %d of %d, pid %d, store %64[^:]:%d",
              &place.rank, &place.world, &place.node, &place.nodes, &place.restart, &place.budget,
              &place.pid, host, &place.port);
  place.host = host;
  return place;
}

/// The same in the next round of so many nodes: one that comes after the others' last call is in a
/// further round.
inline Place next_place_among(testing_support::Command& node, int nodes) {
  Place place = next_place(node);
  while (place.pid > 0 && place.nodes != nodes) place = next_place(node);
  return place;
}

/// Ends all ranks of the round with 0.
inline void finish_round(const Place& place) {
  ASSERT_GT(place.port, 0) << "there is no round";
  rendezvous::connect_tcp_store({place.host, static_cast<std::uint16_t>(place.port)})
      ->set("finish", "");
}

}  // namespace dtrun::launcher
