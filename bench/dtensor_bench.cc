// Moves between layouts and products of distributed matrices: dtrun, the bare collective with the
// copy that no way of doing it avoids, and PyTorch's DTensor over gloo, one Python process beside
// each rank; for products, ScaLAPACK's psgemm and pdgemm over Open MPI, too. They take turns. Each
// time is the slowest rank's, the least of several runs.
//
//     dtrun --nproc_per_node=4 dtensor_bench [--torch PYTHON] [--bytes 1024,...] [--sides 512,...]
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "dtrun/base/env.h"
#include "dtrun/dtrun.h"
#include "python_peer.h"

namespace {

using namespace dtrun;
using dtensor::Partial;
using dtensor::Replicate;
using dtensor::Shard;
using tensors::LocalTensor;

using Call = std::function<void()>;

constexpr const char* kToOtherHalf = "half-half";
constexpr const char* kFromFirst = "first-all";
constexpr const char* kToGrid = "half-grid";

/// What is timed, and how a line asks PyTorch's side for it.
struct Case {
  std::string name;
  std::string question;
  Call own;
  Call bare;  ///< empty for products
};

double slowest_rank(double seconds) {
  const Tensor all = full({1}, seconds, {.dtype = DType::f64});
  dist::all_reduce(all, ReduceOp::max);
  return all.item();
}

/// Seconds a call, of the slowest rank.
double time_calls(const Call& call, int calls) {
  dist::barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return slowest_rank(took.count()) / calls;
}

/// How a round of some 20 ms is cut: ranks that share cores are seldom undisturbed for longer than
/// a turn.
struct Turns {
  int count;
  int calls;  ///< in each
};
/// The same on all ranks.
Turns turns_for(const Call& call) {
  call();
  const double calls = 0.02 / time_calls(call, 3);
  const int count = std::clamp(static_cast<int>(calls), 1, 10);
  return {count, std::max(1, static_cast<int>(calls / count))};
}

/// One tensor that moves again and again keeps the move.
enum class Moved { one_tensor, new_tensors };

/// @param move redistributes the tensor that it gets
template <typename Move>
Call call_of(const Tensor& x, Moved moved, Move move) {
  if (moved == Moved::one_tensor) return [=] { move(x); };
  return [=] { move(Tensor(x.spec(), x.local())); };
}

Case redistribution(const std::string& kind, std::int64_t bytes, Moved moved) {
  const DeviceMesh mesh = dist::init_device_mesh("cpu", {dist::get_world_size()});
  const auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(bytes / 4)));
  const std::int64_t ranks = mesh.size(), part = side / ranks;
  const bool of_terms = kind.starts_with("P");
  const Tensor x = of_terms ? Tensor::from_local(randn({side, side}, {1}), mesh, {Partial()})
                            : randn({side, side}, {1}, mesh, {Shard(0)});
  const dtensor::Placement to = kind.ends_with("R")   ? dtensor::Placement(Replicate())
                                : kind.ends_with("1") ? dtensor::Placement(Shard(1))
                                                      : dtensor::Placement(Shard(0));
  const auto move = [to](const Tensor& tensor) { tensor.redistribute({to}); };
  Case result{kind, kind + " " + std::to_string(side), call_of(x, moved, move), {}};
  const LocalTensor local = x.local();
  if (kind == "S0-S1") {
    result.bare = [=] {
      const LocalTensor packed = tensors::empty({ranks, part, part});
      for (int r = 0; r < ranks; ++r) packed[r].copy_(local.narrow(1, r * part, part));
      const LocalTensor columns = tensors::empty({side, part});
      mesh.group().all_to_all_single(columns.view({ranks, part, part}), packed);
    };
  } else if (kind == "S0-R") {
    result.bare = [=] { mesh.group().all_gather_into_tensor(tensors::empty({side, side}), local); };
  } else if (kind == "P-S0") {
    result.bare = [=] { mesh.group().reduce_scatter_tensor(tensors::empty({part, side}), local); };
  } else {
    result.bare = [=] { mesh.group().all_reduce(local.clone()); };
  }
  return result;
}

// Moves to another mesh, which PyTorch refuses. Bare, each rank sends and receives its own parts.

std::vector<int> ranks_from_to(int begin, int end) {
  std::vector<int> ranks(static_cast<std::size_t>(end - begin));
  std::iota(ranks.begin(), ranks.end(), begin);
  return ranks;
}

/// Rows of the first half of the ranks go to the second half.
Case to_other_half(std::int64_t side, Moved moved) {
  const int ranks = dist::get_world_size(), half = ranks / 2, rank = dist::get_rank();
  const DeviceMesh from("cpu", ranks_from_to(0, half)), to("cpu", ranks_from_to(half, ranks));
  const Tensor x = randn({side, side}, {1}, from, {Shard(0)});
  const LocalTensor local = x.local();
  const auto bare = [=] {
    const ProcessGroup& world = dist::world();
    if (rank < half) return world.send(local, rank + half);
    world.recv(tensors::empty({side / half, side}), rank - half);
  };
  const auto move = [to](const Tensor& tensor) { tensor.redistribute(to, {Shard(0)}); };
  return {kToOtherHalf, "", call_of(x, moved, move), bare};
}

/// The first rank has all, and deals out the rows.
Case from_first(std::int64_t side, Moved moved) {
  const int ranks = dist::get_world_size(), rank = dist::get_rank();
  const DeviceMesh from("cpu", {0}), to("cpu", ranks_from_to(0, ranks));
  const Tensor x = randn({side, side}, {1}, from, {Replicate()});
  const LocalTensor local = x.local();
  const std::int64_t part = side / ranks;
  const auto bare = [=] {
    const ProcessGroup& world = dist::world();
    const LocalTensor own = tensors::empty({part, side});
    if (rank != 0) return (void)world.recv(own, 0);
    for (int r = 1; r < ranks; ++r) world.send(local.narrow(0, r * part, part), r);
    own.copy_(local.narrow(0, 0, part));
  };
  const auto move = [to](const Tensor& tensor) { tensor.redistribute(to, {Shard(0)}); };
  return {kFromFirst, "", call_of(x, moved, move), bare};
}

/// Rows of ranks 0 and 1 become blocks of a grid of four.
Case to_grid(std::int64_t side, Moved moved) {
  const int rank = dist::get_rank();
  const DeviceMesh from("cpu", ranks_from_to(0, 2)), to = dist::init_device_mesh("cpu", {2, 2});
  const Tensor x = randn({side, side}, {1}, from, {Shard(0)});
  const LocalTensor local = x.local();
  const std::int64_t half = side / 2;
  const auto bare = [=] {
    const ProcessGroup& world = dist::world();
    const LocalTensor own = tensors::empty({half, half});
    for (int column = 0; rank < 2 && column < 2; ++column) {
      const LocalTensor block = local.narrow(1, column * half, half);
      const int target = 2 * rank + column;
      if (target == rank) {
        own.copy_(block);
      } else {
        world.send(block.contiguous(), target);
      }
    }
    if (rank != 0) world.recv(own, rank / 2);
  };
  const auto move = [to](const Tensor& tensor) { tensor.redistribute(to, {Shard(0), Shard(1)}); };
  return {kToGrid, "", call_of(x, moved, move), bare};
}

Case crossing(const std::string& kind, std::int64_t bytes, Moved moved) {
  const auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(bytes / 4)));
  Case result = kind == kToOtherHalf ? to_other_half(side, moved)
                : kind == kFromFirst ? from_first(side, moved)
                                     : to_grid(side, moved);
  result.question = "- " + std::to_string(side);
  return result;
}

/// Whether this many ranks can have the move.
bool is_possible(const std::string& kind, int ranks) {
  if (kind == kToGrid) return ranks == 4;
  return kind != kToOtherHalf || ranks % 2 == 0;
}

/// Both factors and the product cut along all axes of the mesh, each of them another dim.
Case product(const std::vector<int>& mesh_shape, DType dtype, std::int64_t side) {
  const DeviceMesh mesh = dist::init_device_mesh("cpu", mesh_shape);
  Placements cut = {Shard(0)};
  if (mesh_shape.size() == 2) cut.push_back(Shard(1));
  const Tensor a = randn({side, side}, {1}, mesh, cut, dtype);
  const Tensor b = randn({side, side}, {2}, mesh, cut, dtype);
  const std::string name =
      fmt::format("matmul{}D_{}", mesh_shape.size(), tensors::dtype_short_name(dtype));
  return {name, name + " " + std::to_string(side), [=] { matmul(a, b).redistribute(cut); }, {}};
}

std::string scaled(double seconds) {
  return std::isfinite(seconds) ? fmt::format("{:.2f}", seconds * 1e6) : "-";
}
std::string ratio(double other, double own) {
  return std::isfinite(other) ? fmt::format("{:.2f}", other / own) : "-";
}

struct Peers {
  std::optional<bench::PythonPeer> torch;
  std::optional<bench::LinePeer> scalapack;  ///< rank 0's, whose processes are all ranks'
};

void compare(const Case& what, int rounds, Peers& peers) {
  const double infinity = std::numeric_limits<double>::infinity();
  double own = infinity, bare = infinity, theirs = infinity;
  const Turns turns = turns_for(what.own);
  for (int round = 0; round < rounds; ++round) {
    const auto time_own = [&] { own = std::min(own, time_calls(what.own, turns.calls)); };
    // After a round of PyTorch's processes their threads still run for a while: neither side is to
    // be timed beside them, nor always be the first.
    if (peers.torch) time_calls(what.own, turns.count * turns.calls);
    for (int turn = 0; turn < turns.count; ++turn) {
      const bool is_first = (round + turn) % 2 == 0;
      if (is_first) time_own();
      if (what.bare) bare = std::min(bare, time_calls(what.bare, turns.calls));
      if (!is_first) time_own();
    }
    dist::barrier();
    if (peers.torch && what.name == what.question.substr(0, what.question.find(' '))) {
      const std::optional<double> took = peers.torch->time(what.question);
      theirs = std::min(theirs, slowest_rank(took.value_or(infinity)));
    }
    if (peers.scalapack && !what.bare) {
      bare = std::min(bare, peers.scalapack->time(what.question).value_or(infinity));
    }
  }
  if (dist::get_rank() != 0) return;
  fmt::print("{:<13}{:>8}{:>12}{:>12}{:>12}{:>8}{:>8}\n", what.name,
             what.question.substr(what.question.find(' ') + 1), scaled(own), scaled(bare),
             scaled(theirs), ratio(bare, own), ratio(theirs, own));
  std::fflush(stdout);
}

constexpr const char* kScalapack = DTRUN_BENCH_BIN "/product_scalapack";

/// Where ranks share cores they have to yield while they wait, which Open MPI does not always find
/// out: without, a product takes fifteen times as long. OpenBLAS gets a thread for each rank.
std::vector<std::string> scalapack_line(int ranks) {
  const bool share_cores = ranks > static_cast<int>(std::thread::hardware_concurrency());
  return {"/usr/bin/env",
          "OMP_NUM_THREADS=1",
          "/usr/bin/mpirun.openmpi",
          "--allow-run-as-root",
          "--oversubscribe",
          "--bind-to",
          "none",
          "--mca",
          "mpi_yield_when_idle",
          share_cores ? "1" : "0",
          "-n",
          std::to_string(ranks),
          kScalapack};
}

/// Where PyTorch's processes meet: a file of rank 0's name.
std::string meeting_place() {
  const Tensor of_first = full({1}, ::getpid(), {.dtype = DType::i64});
  dist::broadcast(of_first, 0);
  const std::string folder = base::get_env("TMPDIR").value_or("/tmp");
  return fmt::format("{}/dtensor_bench.{:.0f}", folder, of_first.item());
}

}  // namespace

int main(int argc, char** argv) {
  std::string python = base::get_env("HOME").value_or("") + "/.cache/dtrun/torch-2.15.0/bin/python";
  int rounds = 5;
  std::vector<std::int64_t> sizes = {1 << 10, 1 << 20, 1 << 26};
  std::vector<std::int64_t> sides = {512, 1024, 2048, 4096};
  std::vector<std::string> moves = {"S0-S1",      "S0-R",     "P-S0", "P-R",
                                    kToOtherHalf, kFromFirst, kToGrid};
  std::vector<std::string> dtypes = {"f32", "f64"};
  bool new_tensors = false;
  CLI::App app("distributed tensors against PyTorch's");
  app.add_option("--torch", python, "a python that imports torch");
  app.add_option("--rounds", rounds);
  app.add_option("--bytes", sizes, "of the whole tensor that is redistributed; 0: none")
      ->delimiter(',');
  app.add_option("--sides", sides, "of the matrices that are multiplied; 0: none")->delimiter(',');
  app.add_option("--moves", moves, "which moves")->delimiter(',')->check(CLI::IsMember(moves));
  app.add_flag("--new", new_tensors,
               "each move is of a new tensor, which has kept no move: as in a training");
  app.add_option("--dtypes", dtypes, "of the matrices")
      ->delimiter(',')
      ->check(CLI::IsMember(dtypes));
  CLI11_PARSE(app, argc, argv);
  std::erase(sizes, 0);
  std::erase(sides, 0);

  std::signal(SIGPIPE, SIG_IGN);  // a peer that has ended gives no times
  dist::init_process_group();
  const int ranks = dist::get_world_size();
  Peers peers;
  if (::access(python.c_str(), X_OK) == 0) {
    ::setenv("DTENSOR_BENCH_MEETING", meeting_place().c_str(), 1);
    peers.torch.emplace(python, "dtensor_torch.py");
  } else if (dist::get_rank() == 0) {
    fmt::print("no python with PyTorch at {}: tests/lab/torch-up makes one\n", python);
  }
  if (dist::get_rank() == 0) {
    // Its processes wake up each millisecond to look for a question.
    if (!sides.empty() && ::access(kScalapack, X_OK) == 0)
      peers.scalapack.emplace(scalapack_line(ranks));
    fmt::print("{:<13}{:>8}{:>12}{:>12}{:>12}{:>8}{:>8}\n", "move", "side", "dtrun us", "bare us",
               "torch us", "bare/", "torch/");
  }
  const Moved moved = new_tensors ? Moved::new_tensors : Moved::one_tensor;
  for (const std::string& move : moves) {
    const bool crosses = move == kToOtherHalf || move == kFromFirst || move == kToGrid;
    for (const std::int64_t bytes : sizes) {
      if (!is_possible(move, ranks)) continue;
      compare(crosses ? crossing(move, bytes, moved) : redistribution(move, bytes, moved), rounds,
              peers);
    }
  }
  for (const std::string& dtype : dtypes) {
    for (const std::int64_t side : sides) {
      compare(product({ranks}, tensors::parse_dtype(dtype), side), rounds, peers);
      if (ranks % 2 == 0)
        compare(product({2, ranks / 2}, tensors::parse_dtype(dtype), side), rounds, peers);
    }
  }
  if (peers.torch) std::filesystem::remove(meeting_place());
  dist::destroy_process_group();
}
