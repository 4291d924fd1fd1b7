// Two ranks of one process that have met in worlds without shared memory.
#pragma once

#include <array>
#include <memory>
#include <thread>

#include "cpu/world.h"
#include "dtrun/rendezvous/hash_store.h"
#include "support/rank_threads.h"

namespace dtrun::test {

using TcpWorlds = std::array<std::shared_ptr<collectives::cpu::World>, 2>;

inline TcpWorlds tcp_worlds() {
  TcpWorlds worlds;
  const auto store = rendezvous::make_hash_store();
  const auto join = [&](int rank) {
    worlds[static_cast<std::size_t>(rank)] = collectives::cpu::World::create(
        group_options(store, rank, 2, {.transport = collectives::Transport::tcp}));
  };
  std::thread other(join, 1);
  join(0);
  other.join();
  return worlds;
}

}  // namespace dtrun::test
