// ServedClient: one connection of a TcpStoreServer: its socket, its session, and where it stands in
// the server's lists. Small: a server has tens of thousands.
#pragma once

#include <cstdint>
#include <list>
#include <utility>

#include "dtrun/base/deadline.h"
#include "dtrun/base/unique_fd.h"
#include "store/store_session.h"

namespace dtrun::rendezvous {

struct LegacyPeer;

struct ServedClient : StoreSession {
  ServedClient(StoreService& service, base::UniqueFd socket)
      : StoreSession(service), fd(std::move(socket)) {}

  base::UniqueFd fd;
  std::uint32_t watched = 0;  ///< the events that are asked for; 0: none ever
  bool closed = false;
  bool newcomer = true;   ///< stands among the newcomers
  bool in_batch = false;  ///< its answers are with the SendPool
  bool proved = false;    ///< has the token, where one is demanded
  bool spared = false;    ///< silent beside a live legacy client
  bool ended = false;     ///< sends no more, and may still read
  std::list<ServedClient>::iterator place;
  std::list<ServedClient*>::iterator newcomer_place;
  base::Deadline::Clock::time_point since{};  ///< of a newcomer: its time runs from here
  LegacyPeer* legacy_peer = nullptr;
};

}  // namespace dtrun::rendezvous
