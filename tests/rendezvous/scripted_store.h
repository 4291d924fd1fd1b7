// A store's server written out by hand, byte for byte, for a client under test.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/served_store.h"

namespace dtrun::rendezvous {

// A server written out by hand: takes one connection after another and does with it as told.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::function<void(RawClient&)>> script)
      : listener_(base::listen_tcp("127.0.0.1", 0)), thread_([this, script = std::move(script)] {
          for (const auto& scene : script) {
            RawClient peer(base::UniqueFd(::accept4(listener_.get(), nullptr, nullptr, 0)));
            scene(peer);
          }
        }) {}
  ~ScriptedServer() { thread_.join(); }
  TcpStoreOptions options() const {
    return {"127.0.0.1", base::local_port(listener_.get()), std::chrono::seconds(30)};
  }

 private:
  base::UniqueFd listener_;
  std::thread thread_;
};

inline void greet(RawClient& peer) {
  const std::string hello = peer.receive(10);
  EXPECT_EQ(hex(hello.substr(0, 6)), hex(bytes("00 ce f7 85 3c 0d")));
  peer.send(hello.substr(6));
}

inline void expect_request(RawClient& peer, const std::string& request, const std::string& reply) {
  const std::string expected = bytes(request);
  EXPECT_EQ(hex(peer.receive(expected.size())), hex(expected));
  peer.send(bytes(reply));
}

}  // namespace dtrun::rendezvous
