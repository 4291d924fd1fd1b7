// StoreHost: serves the c10d store from a thread of this process, for a job that was started by
// hand: there rank 0 hosts the store, as in PyTorch. Owned by the Worker of rank 0; stopping it
// ends the thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "dtrun/rendezvous/token.h"

namespace dtrun::runtime {

class StoreHost {
 public:
  /// @throws Error kSystem when the port cannot be had
  /// @param token what its clients must have, where anything
  StoreHost(const std::string& address, std::uint16_t port,
            std::optional<rendezvous::Token> token = std::nullopt);
  ~StoreHost();
  StoreHost(const StoreHost&) = delete;
  StoreHost& operator=(const StoreHost&) = delete;

  std::uint16_t port() const { return port_; }

 private:
  struct Service;
  std::unique_ptr<Service> service_;
  std::uint16_t port_ = 0;
};

}  // namespace dtrun::runtime
