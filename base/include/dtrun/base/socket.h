// TCP and Unix sockets: addresses, listening, connecting with a deadline. Every fd is
// close-on-exec. Blocking I/O of exact lengths for small control messages; the data path of
// collectives has its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::base {

/// "host", "host:port", "[v6]", "[v6]:port".
struct HostPort {
  std::string host;
  std::optional<std::uint16_t> port;
  /// @throws Error kInvalidArgument
  static HostPort parse(std::string_view text);
  std::string to_string() const;
};

/// Numeric addresses of a name, in the resolver's order, each once.
/// @throws Error kConnection when it does not resolve
std::vector<std::string> resolve_addresses(const std::string& host);
/// Numeric addresses of this machine's interfaces that are up, loopback included.
std::vector<std::string> interface_addresses();
/// The numeric address of the first of these interfaces ("eth1,eth0") that is up and has one, IPv4
/// before IPv6. @param source what named them, for the error. @throws Error kInvalidArgument naming
/// the interfaces that there are
std::string address_of_interface(std::string_view names, std::string_view source);

/// Listens on one address; port 0 lets the kernel choose. @throws Error kSystem (address in use
/// names the port)
UniqueFd listen_tcp(const std::string& host, std::uint16_t port);
/// The same; an invalid fd where the port is in use. @throws Error kSystem
UniqueFd listen_tcp_unless_taken(const std::string& host, std::uint16_t port);
std::uint16_t local_port(int socket_fd);
/// Numeric local / remote address of a connected socket, without the port.
std::string local_address(int socket_fd);
std::string peer_address(int socket_fd);
/// The local address from which this machine would reach `host`; nothing is sent.
/// @throws Error kConnection when the name does not resolve or there is no route
std::string source_address_towards(const std::string& host);

/// Tries every address of both families, again and again with jittered backoff while the peer
/// refuses or its name does not resolve yet, until the deadline. TCP_NODELAY is set; the fd is
/// blocking.
/// @throws Error kConnection naming host, port, the last cause and how long it tried
UniqueFd connect_tcp(const std::string& host, std::uint16_t port, Deadline deadline);
/// The same, but without another try after a refusal: for a peer that has been there.
UniqueFd connect_tcp_once(const std::string& host, std::uint16_t port, Deadline deadline);

/// @throws Error kConnection (peer closed), kTimeout
void send_all(int fd, const void* data, std::size_t size, Deadline deadline);
void receive_all(int fd, void* data, std::size_t size, Deadline deadline);

void set_nonblocking(int fd);
std::string host_name();
/// host_name() as the resolver completes it ("node1.cluster"); host_name() where it cannot.
std::string whole_host_name();

/// A host that is gone sends no FIN. The kernel ends the TCP connection after a silence of `idle`
/// and then no answer to probes (half of that time each), or when sent bytes stay unacknowledged
/// for `unacknowledged`, also because the peer's reader does not read.
void notice_silence(int fd, Deadline::Duration idle, Deadline::Duration unacknowledged);

/// Of a connected TCP socket, the shortest that the kernel has seen of late, without the time for
/// which the peer holds an acknowledgement back; 0 where it tells none.
Deadline::Duration least_round_trip_of(int socket_fd);

}  // namespace dtrun::base
