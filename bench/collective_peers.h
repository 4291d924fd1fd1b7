// The contenders of collective_bench: which libraries there are, and the command that starts one of
// each. Pure, apart from a look at which programs there are.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::bench {

/// How the ranks may reach one another.
enum class Network { shared_memory, tcp };

/// Whether each rank has a core that it stays on. where_enough: where there is one for each.
/// bound: the ranks take turns at the cores.
enum class CoreBinding { where_enough, bound, unbound };

struct PeerOptions {
  int ranks = 2;
  Network network = Network::shared_memory;
  CoreBinding binding = CoreBinding::where_enough;
  std::string folder;  ///< of the programs
  std::string mpi;     ///< of other MPIs; empty: the system's
  std::string torch;   ///< a python that has PyTorch; empty: without it
  std::string lab;     ///< of hosts-exec: half of the ranks on its host 1, half on host 2
  std::vector<std::string> only;
};

struct Peer {
  std::string name;
  std::string program;   ///< its ranks
  std::string launcher;  ///< words in front of the program
};

/// In the order of the table. Who is not installed is named on standard output, and left out.
std::vector<Peer> peers_of(const PeerOptions& options);

/// For sh: runs all of them once, and ends with 124 where that takes more seconds than `patience`.
/// @param calls operation, bytes, samples each @param folder empty
std::string command_of(const Peer& peer, const PeerOptions& options, const std::string& calls,
                       const std::string& folder, int patience);

}  // namespace dtrun::bench
