// HostOrder: what a dtrun --hosts tells the dtrun --remote-agent of a host, and the words that both
// say to each other. The wire format of both sides; pure.
//
// The relay (--remote-agent) begins with a line on its standard output, behind whatever the remote
// shell has printed before it:
//     DTRUN-AGENT <protocol> <version> <mark> <port>
// where <port> is that at which the first host listens already, else 0. The starter answers on the
// relay's standard input with the order, one line of JSON, and with further lines:
//     port <port>     the first host listens there: as soon as it is known
//     go              all hosts are ready: the ranks may start
//     signal <n>      for the relay's dtrun
// and the end of the input means: end everything. What the relay says later stands among the ranks'
// output, so it begins with its mark, which is random:
//     \x1e<mark> ready
//     \x1e<mark> failed <JSON: [{"host", "what", "why", "remedy", "code"}]>
//     \x1e<mark> end <exit code>
//
// The order does not go ahead of the greeting, though that would save a round trip: what listens
// there may be a login shell or a log, and the order holds the job's secret and the user's words.
// The host's dtrun, forked already, gets the order from its relay and lacks only the port. With the
// port it joins the others' dtruns, while further hosts are being reached. The first host's dtrun
// opens no round before "go", so that the ranks wait for all hosts, and the last host for no round
// trip.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::launcher {

inline constexpr int kHostProtocol = 2;
inline constexpr std::string_view kHostGreeting = "DTRUN-AGENT ";
inline constexpr char kHostMark = '\x1e';
/// Longer is neither an order nor a remote shell's words.
inline constexpr std::size_t kMostOrderBytes = 64 << 20, kMostBannerBytes = 64 << 10;

/// Where a dtrun is started that its starter runs itself.
enum class HostPlace { kThisMachine, kRemote };

struct HostNode {
  std::string host;
  int node_rank = 0;
  std::string ranks;  ///< of --nproc_per_node
  HostPlace place = HostPlace::kRemote;
};

struct HostOrder {
  std::string version;                             ///< of the starter
  std::vector<std::string> options;                ///< of every node's dtrun
  std::vector<std::string> program;                ///< words_of() the programs
  std::map<std::string, std::string> environment;  ///< beside the host's own
  std::string folder;
  int node_count = 0;
  std::string master_addr;
  std::vector<std::string> remote_shell;  ///< its words; the host and the command follow
  std::string remote_dtrun;
  int fanout = 32;
  std::chrono::nanoseconds join_timeout{};
  std::chrono::nanoseconds grace{};  ///< that ranks have to end
  std::vector<HostNode> nodes;       ///< the reader's own, and those that it is to start

  /// One line, with its end.
  std::string to_line() const;
  /// @throws Error kProtocol
  static HostOrder parse(std::string_view line);
};

/// Why a host does not take part.
struct HostFailure {
  std::string host;
  std::string what;
  std::string why;
  std::string remedy;
  int code = 0;  ///< that dtrun would end with
};

std::string failures_to_json(const std::vector<HostFailure>& failures);
/// @throws Error kProtocol
std::vector<HostFailure> failures_of_json(std::string_view text);

/// The nodes that `fanout` children start, in their order: what each is told of. A node of this
/// machine is a child alone.
std::vector<std::vector<HostNode>> divided(const std::vector<HostNode>& nodes, int fanout);

}  // namespace dtrun::launcher
