#include "store/legacy_peers.h"

#include <utility>

#include "dtrun/base/socket.h"

namespace dtrun::rendezvous {

void LegacyPeers::add_speaking(ServedClient& client) {
  const std::string address = base::peer_address(client.fd.get());
  LegacyPeer& peer = peers_[address];
  peer.address = address;
  ++peer.speaking;
  client.legacy_peer = &peer;
}

bool LegacyPeers::spare(ServedClient& client) {
  if (!client.silent()) return false;
  const auto found = peers_.find(base::peer_address(client.fd.get()));
  if (found == peers_.end() || found->second.silent.size() >= found->second.speaking) return false;
  client.legacy_peer = &found->second;
  client.spared = true;
  found->second.silent.push_back(&client);
  return true;
}

ServedClient* LegacyPeers::leave(ServedClient& client) {
  LegacyPeer* peer = std::exchange(client.legacy_peer, nullptr);
  if (peer == nullptr) return nullptr;
  if (std::exchange(client.spared, false)) {
    peer->silent.remove(&client);
  } else {
    --peer->speaking;
  }
  if (peer->silent.size() > peer->speaking) return peer->silent.front();
  if (peer->speaking == 0) peers_.erase(std::string(peer->address));
  return nullptr;
}

}  // namespace dtrun::rendezvous
