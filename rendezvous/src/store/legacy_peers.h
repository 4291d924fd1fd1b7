// LegacyPeers: which addresses speak the legacy dialect, and which silent connections are allowed
// because of them. PyTorch up to 2.0 opens a second connection for watch callbacks and never writes
// to it: one such is spared for each that speaks. Not thread-safe.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <string>

#include "store/served_client.h"

namespace dtrun::rendezvous {

struct LegacyPeer {
  std::string address;
  std::size_t speaking = 0;
  std::list<ServedClient*> silent;
};

class LegacyPeers {
 public:
  /// It has sent a legacy request.
  void add_speaking(ServedClient& client);
  /// True: it may stay silent.
  bool spare(ServedClient& client);
  /// It is closed, or no longer silent. Returns one that has to go with it, or null.
  ServedClient* leave(ServedClient& client);

 private:
  std::map<std::string, LegacyPeer> peers_;
};

}  // namespace dtrun::rendezvous
