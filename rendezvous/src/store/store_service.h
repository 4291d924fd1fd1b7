// StoreService: what all sessions of one server share: the store, what is allowed, and the scratch
// that they use one after the other. Owned by the server; not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "store/request_parser.h"
#include "store/store_core.h"
#include "store/store_protocol.h"

namespace dtrun::rendezvous {

class StoreSession;

struct StoreService {
  struct Settings {
    RequestLimits limits;
    /// The dialect of clients that do not begin with VALIDATE; nullopt: they are refused.
    std::optional<StoreDialect> legacy = StoreDialect::kTorch19To20;
    /// The limit of all keys, values, queues, waits, half requests and unsent answers together.
    std::size_t most_bytes = std::size_t{2} << 30;
  };

  StoreService() = default;
  explicit StoreService(const Settings& given) : settings(given), core(given.most_bytes) {}

  const Settings settings{};
  /// Beyond so many bytes of answers that a client has not read, its requests wait.
  const std::size_t most_output =
      std::clamp<std::size_t>(settings.most_bytes / 64, 4 << 10, 1 << 20);
  StoreCore core{settings.most_bytes};
  /// The sessions that have output because other sessions' requests have ended their waits.
  std::vector<StoreSession*> released;
  /// The one that is being served.
  Request request;
};

}  // namespace dtrun::rendezvous
