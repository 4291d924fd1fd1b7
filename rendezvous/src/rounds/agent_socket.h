// The sockets of agents and heads: their options, and what their errors mean.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dtrun/base/deadline.h"
#include "dtrun/rendezvous/round_head.h"
#include "rounds/agent_session.h"

namespace dtrun::rendezvous {

/// Non-blocking, and no waiting for more to send.
void prepare_agent_socket(int socket);
/// The connection breaks when what was sent is not acknowledged for so long.
void set_patience(int socket, base::Deadline::Duration patience);

/// Whether the other side's machine has got all that was sent.
bool is_acknowledged(int socket);

struct ConnectionEnd {
  rounds::LossKind kind = rounds::LossKind::kGone;
  std::string why;
};
/// One read of a non-blocking socket into `buffer`, as far as the session wants.
/// @param received empty: there was nothing
/// @return how it ended; nullopt: it has not
std::optional<ConnectionEnd> read_some(int socket, const AgentSession& session,
                                       std::span<char> buffer, std::string_view& received);
enum class Sent { kAll, kSome };
/// As much as the socket takes. Where the other side is gone all of it is dropped: reading tells of
/// that, after what it still said.
Sent send_unsent(int socket, AgentSession& session);

}  // namespace dtrun::rendezvous
