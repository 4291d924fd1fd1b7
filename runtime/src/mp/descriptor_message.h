// Descriptor message: a number, and descriptors with it, over a Unix socket that keeps messages
// apart (SOCK_SEQPACKET).
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "dtrun/base/unique_fd.h"

namespace dtrun::mp {

struct DescriptorMessage {
  int number = 0;
  std::vector<base::UniqueFd> fds;  ///< at most 8
};

/// Both ends close-on-exec and above the standard streams. @throws Error kSystem
std::pair<base::UniqueFd, base::UniqueFd> make_message_sockets();

/// False when the peer is gone. @throws Error kSystem
bool send_message(int socket, int number, const std::vector<int>& fds);

/// Waits. nullopt when the peer is gone. @throws Error kSystem
std::optional<DescriptorMessage> receive_message(int socket);

}  // namespace dtrun::mp
