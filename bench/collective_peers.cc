#include "collective_peers.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace dtrun::bench {
namespace {

std::string file_of(const std::string& words) {
  return words.substr(0, words.find(' '));
}

bool is_there(const std::string& program) {
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0;
  return ::access(("/usr/bin/" + program).c_str(), X_OK) == 0;
}

bool is_crowded(const PeerOptions& options) {
  return options.ranks > static_cast<int>(std::thread::hardware_concurrency());
}

bool is_bound(const PeerOptions& options) {
  if (options.binding == CoreBinding::where_enough) return !is_crowded(options);
  return options.binding == CoreBinding::bound;
}

/// "0,1,0,1": the core of each rank. MPICH binds those that have none in its list to all cores.
std::string cores_of_ranks(const PeerOptions& options) {
  std::string list;
  for (int rank = 0; rank < options.ranks; ++rank)
    list += (rank == 0 ? "" : ",") +
            std::to_string(static_cast<unsigned>(rank) % std::thread::hardware_concurrency());
  return list;
}

/// Of Open MPI, 4 and 5: its collectives by shared memory would not stay with TCP.
std::string open_mpi_words(const PeerOptions& options) {
  std::string words = "--allow-run-as-root";
  if (is_crowded(options)) words += " --oversubscribe";
  if (is_bound(options))
    words += is_crowded(options) ? " --bind-to core:overload-allowed" : " --bind-to core";
  if (options.binding == CoreBinding::unbound) words += " --bind-to none";
  if (options.network == Network::tcp)
    words += " --mca pml ob1 --mca btl tcp,self --mca coll basic,libnbc,self,inter,tuned,sync";
  if (!options.lab.empty())
    words += fmt::format(
        " --mca btl_tcp_if_include eth0 --prtemca plm_ssh_agent $LAB_DIR/ssh/ssh "
        "--host node1:{0},node2:{0}",
        options.ranks / 2);
  return words;
}

std::string mpich_words(const PeerOptions& options) {
  if (!is_bound(options)) return "";
  return is_crowded(options) ? "-bind-to user:" + cores_of_ranks(options) : "-bind-to core";
}

/// Where nothing is said, its ranks take turns at the cores.
std::string intel_words(const PeerOptions& options) {
  switch (options.binding) {
    case CoreBinding::where_enough:
    case CoreBinding::bound:
      return "";
    case CoreBinding::unbound:
      return "-genv I_MPI_PIN=0";
  }
  return "";
}

std::vector<Peer> system_mpis(const PeerOptions& options) {
  return {{"Open MPI", options.folder + "collective_openmpi",
           fmt::format("mpirun.openmpi {} -np {}", open_mpi_words(options), options.ranks)},
          {"MPICH", options.folder + "collective_mpich",
           fmt::format("mpiexec.mpich {} -np {}", mpich_words(options), options.ranks)}};
}

std::vector<Peer> other_mpis(const PeerOptions& options) {
  const auto peer = [&](const char* name, const char* folder, const std::string& words) {
    const std::string home = options.mpi + "/" + folder;
    return Peer{name, fmt::format("{}collective_{}_other", options.folder, folder),
                fmt::format("/usr/bin/env LD_LIBRARY_PATH={0}/lib I_MPI_ROOT={0} {0}/bin/mpiexec "
                            "{1} -n {2}",
                            home, words, options.ranks)};
  };
  return {peer("Open MPI", "openmpi", open_mpi_words(options)),
          peer("MPICH", "mpich", mpich_words(options)),
          peer("Intel MPI", "intel", intel_words(options))};
}

std::string dtrun_of(const PeerOptions& options) {
  if (options.lab.empty())
    return fmt::format("{}dtrun --nproc_per_node={}", options.folder, options.ranks);
  return fmt::format("{}dtrun --nproc_per_node={} --nnodes=2 --master_addr=10.88.0.1",
                     options.folder, options.ranks / 2);
}

}  // namespace

std::vector<Peer> peers_of(const PeerOptions& options) {
  const std::string dtrun = dtrun_of(options);
  std::vector<Peer> all = {{"dtrun", options.folder + "collective_dtrun", dtrun},
                           {"gloo", options.folder + "collective_gloo", dtrun}};
  if (!options.torch.empty()) all.push_back({"PyTorch", options.torch, dtrun});
  const bool is_tcp = options.network == Network::tcp;
  if (!is_tcp)
    all.insert(all.begin() + 1, {"in place", options.folder + "collective_dtrun", dtrun});
  for (Peer& mpi : options.mpi.empty() ? system_mpis(options) : other_mpis(options))
    if (!is_tcp || mpi.name == "Open MPI") all.push_back(std::move(mpi));
  std::erase_if(all, [&](const Peer& peer) {
    if (!options.only.empty() && std::ranges::find(options.only, peer.name) == options.only.end())
      return true;
    for (const std::string& file : {file_of(peer.launcher), peer.program}) {
      if (is_there(file)) continue;
      fmt::print("{} is left out: {} is missing\n", peer.name, file);
      return true;
    }
    return false;
  });
  return all;
}

std::string command_of(const Peer& peer, const PeerOptions& options, const std::string& calls,
                       const std::string& folder, int patience) {
  std::string program = peer.program;
  if (peer.name == "gloo") program += " " + folder;
  if (peer.name == "PyTorch") program += " " DTRUN_BENCH_FOLDER "/collective_torch.py";
  if (peer.name == "in place") program += " --shared-memory";
  if (peer.name == "dtrun" && options.network == Network::tcp && options.lab.empty())
    program += " --tcp";
  if (options.binding == CoreBinding::bound) program += " --bound";
  if (options.binding == CoreBinding::unbound) program += " --unbound";
  const std::string in_time = fmt::format("OMP_NUM_THREADS=1 timeout {} ", patience);
  if (options.lab.empty()) return in_time + peer.launcher + " " + program + calls;
  const std::string on_host = in_time + options.lab + "/hosts-exec ";
  if (peer.name == "Open MPI") return on_host + "1 " + peer.launcher + " " + program + calls;
  const auto node = [&](int host) {
    return fmt::format("{}{} {} --node_rank={} {}{}", on_host, host, peer.launcher, host - 1,
                       program, calls);
  };
  return fmt::format("{} & other=$!; {}; own=$?; wait $other && exit $own", node(2), node(1));
}

}  // namespace dtrun::bench
