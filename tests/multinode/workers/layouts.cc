// layouts PART: a job of two hosts with two ranks each. Moves tensors from every layout of the part
// to every other, and compares each rank's elements, and the whole, with the plain tensor's, and
// the bytes that are sent with those that explain() tells. Prints "rank R PART right N", with the
// number of moves.
//   pairs   on the mesh of hosts and ranks, and a product with its gradients
//   orders  the same, of dims that both axes cut, in either order
//   ragged  the same, of shards with a size for each rank
//   meshes  between meshes of some of the ranks, in lines and squares, and a gradient through them
//   async   moves on one mesh and between meshes, of which two are under way at a time
//   forever N  moves without an end until rank N kills itself; the others print when they are told,
//           by the clock of the machine that both hosts are on, and of whom
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/dtrun.h"

namespace {

using namespace dtrun;
using dtensor::Partial;
using dtensor::Placement;
using dtensor::Replicate;
using dtensor::Shard;
using dtensor::ShardOrder;

/// How a tensor lies, and on what.
struct Place {
  DeviceMesh mesh;
  Placements placements;
  ShardOrder order = {};
};

Tensor counted(const Shape& shape) {
  return arange(0, static_cast<double>(tensors::numel(shape)), 1, {.dtype = DType::f64})
      .view(shape);
}

void require_same(const Tensor& actual, const Tensor& expected, const std::string& what) {
  if (actual.shape() == expected.shape() && actual.to_vector() == expected.to_vector()) return;
  print("rank {} wrong: {}: {} for {}", dist::get_rank(), what, actual, expected);
  std::exit(1);
}

/// The elements [begin, begin + size) of a dim of n that one of the ranks along an axis has.
struct Range {
  std::int64_t begin, size;
};
Range range_of(const Placement& placement, std::int64_t n, int parts, int index) {
  if (placement.is_ragged()) {
    const auto first = placement.sizes().begin();
    return {std::accumulate(first, first + index, std::int64_t{0}), first[index]};
  }
  const std::int64_t most = (n + parts - 1) / parts, begin = std::min(n, most * index);
  return {begin, std::min(most, n - begin)};
}

/// Of the axes that cut the dim, the outermost first.
std::vector<int> cutting_axes(const Place& place, int dim) {
  const auto given = place.order.find(dim);
  if (given != place.order.end()) return given->second;
  std::vector<int> axes;
  for (std::size_t axis = 0; axis < place.placements.size(); ++axis)
    if (place.placements[axis].is_shard(dim)) axes.push_back(static_cast<int>(axis));
  return axes;
}

Tensor own_part(const Tensor& whole, const Place& place) {
  Tensor part = whole;
  for (int dim = 0; dim < whole.dim(); ++dim)
    for (const int axis : cutting_axes(place, dim)) {
      const auto at = static_cast<std::size_t>(axis);
      const Range range = range_of(place.placements[at], part.size(dim), place.mesh.size(axis),
                                   place.mesh.coordinate()[at]);
      part = part.narrow(dim, range.begin, range.size);
    }
  return part;
}

bool has_partial(const Place& place) {
  return std::ranges::any_of(place.placements, [](const Placement& p) { return p.is_partial(); });
}

void require_at(const Place& place, const Tensor& tensor, const Tensor& whole,
                const std::string& from) {
  if (!place.mesh.has_this_rank()) return;
  const std::string what = from + " to " + tensor.spec().to_string();
  require_same(tensor.full_tensor(), whole, what);
  if (!has_partial(place)) require_same(tensor.to_local(), own_part(whole, place), what);
}

Tensor laid(const Tensor& whole, const Place& place) {
  const Placements everywhere(place.placements.size(), Replicate());
  return distribute_tensor(whole, place.mesh, everywhere, {.source_rank = -1})
      .redistribute(place.placements, place.order);
}

Tensor moved(const Tensor& tensor, const Place& to) {
  if (tensor.device_mesh() == to.mesh) return tensor.redistribute(to.placements, to.order);
  return tensor.redistribute(to.mesh, to.placements, to.order);
}

dtensor::PendingTensor moving(const Tensor& tensor, const Place& to) {
  if (tensor.device_mesh() == to.mesh) return tensor.redistribute_async(to.placements, to.order);
  return tensor.redistribute_async(to.mesh, to.placements, to.order);
}

/// What the transports have carried for this rank along the axes of a mesh and among all its ranks;
/// 0 outside of it.
std::int64_t bytes_carried(const DeviceMesh& mesh) {
  if (!mesh.has_this_rank()) return 0;
  std::vector<ProcessGroup> groups = mesh.all_groups();
  if (mesh.ndim() > 1) groups.push_back(mesh.group());
  std::int64_t bytes = 0;
  for (const ProcessGroup& group : groups) {
    const collectives::TransportCounters counters = group.counters();
    bytes += static_cast<std::int64_t>(counters.shared_memory_bytes_sent + counters.tcp_bytes_sent);
  }
  return bytes;
}

void require_bytes(std::int64_t bytes, std::int64_t told, const std::string& whose,
                   const std::string& what) {
  if (bytes == told) return;
  print("rank {} wrong: {}: {} counts {} bytes, explain() tells {}", dist::get_rank(), what, whose,
        bytes, told);
  std::exit(1);
}

/// Sends as many bytes as explain() tells.
Tensor moved_as_told(const Tensor& tensor, const Place& to) {
  const std::string what =
      tensor.spec().to_string() + " to " + dtensor::placements_to_string(to.placements);
  const std::int64_t told = dtensor::explain([&] { moved(tensor, to); }).bytes_sent();
  // Longer lines over both hosts pass on what a third rank has sent.
  const bool is_told_by_transport =
      tensor.device_mesh() == to.mesh &&
      std::ranges::all_of(to.mesh.shape(), [](int ranks) { return ranks <= 2; });
  const std::int64_t before = is_told_by_transport ? bytes_carried(to.mesh) : 0;
  const CommCounter counter;
  const Tensor there = moved(tensor, to);
  require_bytes(counter.get_total_bytes(), told, "CommCounter", what);
  if (is_told_by_transport)
    require_bytes(bytes_carried(to.mesh) - before, told, "the transport", what);
  return there;
}

/// One of `every` moves between the places. @return how many moves that are
int move_all(const std::vector<Place>& places, const Tensor& whole, int every = 1) {
  int moves = 0, pair = 0;
  for (const Place& from : places) {
    const Tensor x = laid(whole, from);
    for (const Place& to : places) {
      if (pair++ % every != 0) continue;
      require_at(to, moved_as_told(x, to), whole, x.spec().to_string());
      ++moves;
    }
  }
  return moves;
}

/// The second one is waited for before the first.
int move_all_in_pairs(const std::vector<Place>& places, const Tensor& whole, int every = 1) {
  int moves = 0, pair = 0;
  for (const Place& from : places) {
    const Tensor x = laid(whole, from);
    for (std::size_t i = 0; i + 1 < places.size(); ++i) {
      if (pair++ % every != 0) continue;
      dtensor::PendingTensor first = moving(x, places[i]), second = moving(x, places[i + 1]);
      require_at(places[i + 1], second.wait(), whole, x.spec().to_string());
      require_at(places[i], first.wait(), whole, x.spec().to_string());
      moves += 2;
    }
  }
  return moves;
}

const Shape kShapes[] = {{5, 3}, {8, 4}, {1}, {300, 257}};
constexpr std::int64_t kMany = 1000;  // elements: one of several moves does

std::vector<Place> plain_places(const DeviceMesh& mesh, int dims) {
  Placements of_axis = {Replicate(), Partial()};
  for (int d = 0; d < dims; ++d) of_axis.push_back(Shard(d));
  std::vector<Place> places;
  for (const Placement& outer : of_axis)
    for (const Placement& inner : of_axis) places.push_back({mesh, {outer, inner}});
  return places;
}

void train_a_step(const DeviceMesh& mesh) {
  const Tensor samples = counted({5, 3}), weight = counted({3, 7});
  const Tensor x = laid(samples, {mesh, {Shard(0), Replicate()}});
  const Tensor w = laid(weight, {mesh, {Replicate(), Shard(1)}});
  x.requires_grad_();
  w.requires_grad_();
  const Tensor y = matmul(x, w);
  require_same(y.full_tensor(), matmul(samples, weight), "the product");
  y.sum().backward();
  const Tensor ones_57 = ones({5, 7}, {.dtype = DType::f64});
  require_same(x.grad().full_tensor(), matmul(ones_57, weight.t()), "a gradient");
  require_same(w.grad().full_tensor(), matmul(samples.t(), ones_57), "a gradient");
}

int pairs(const DeviceMesh& mesh) {
  int moves = 0;
  for (const Shape& shape : kShapes)
    moves += move_all(plain_places(mesh, static_cast<int>(shape.size())), counted(shape));
  train_a_step(mesh);
  return moves;
}

int orders(const DeviceMesh& mesh) {
  int moves = 0;
  for (const Shape& shape : kShapes) {
    std::vector<Place> places;
    for (int dim = 0; dim < static_cast<int>(shape.size()); ++dim)
      for (const std::vector<int>& axes : {std::vector<int>{0, 1}, std::vector<int>{1, 0}})
        places.push_back({mesh, {Shard(dim), Shard(dim)}, {{dim, axes}}});
    places.push_back({mesh, {Replicate(), Shard(0)}});
    places.push_back({mesh, {Shard(0), Partial()}});
    if (shape.size() > 1) places.push_back({mesh, {Shard(1), Shard(0)}});
    moves += move_all(places, counted(shape));
  }
  return moves;
}

std::vector<Place> ragged_places(const DeviceMesh& mesh, const Shape& shape) {
  const std::int64_t n = shape[0], m = shape[1];
  return {{mesh, {Shard(0, {n - 1, 1}), Replicate()}},
          {mesh, {Shard(0, {0, n}), Shard(1)}},
          {mesh, {Shard(0, {2, n - 2}), Shard(0)}},
          {mesh, {Shard(0), Shard(0, {n - 1, 1})}, {{0, {1, 0}}}},
          {mesh, {Replicate(), Shard(1, {1, m - 1})}},
          {mesh, {Shard(1, {m, 0}), Shard(0, {1, n - 1})}},
          {mesh, {Partial(), Shard(1, {m - 2, 2})}},
          {mesh, {Shard(0), Shard(1)}},
          {mesh, {Replicate(), Replicate()}}};
}

int ragged(const DeviceMesh& mesh) {
  int moves = 0;
  for (const Shape& shape : kShapes)
    if (shape.size() == 2) moves += move_all(ragged_places(mesh, shape), counted(shape));
  return moves;
}

std::vector<Place> places_of_meshes(const Shape& shape) {
  const std::int64_t n = shape[0];
  std::vector<Place> places;
  const std::vector<dtensor::RankGrid> lines = {
      {0, 1}, {2, 3}, {1, 2}, {3, 1, 0, 2}, std::vector<int>{0}};
  for (const dtensor::RankGrid& line : lines) {
    const DeviceMesh mesh("cpu", line);
    for (const Placement& placement : {Replicate(), Shard(0), Shard(1), Partial()})
      places.push_back({mesh, {placement}});
    if (mesh.size(0) == 2) places.push_back({mesh, {Shard(0, {n - 1, 1})}});
  }
  const std::vector<dtensor::RankGrid> squares = {{{0, 1}, {2, 3}}, {{3, 0}, {1, 2}}};
  for (const dtensor::RankGrid& square : squares) {
    const DeviceMesh mesh("cpu", square);
    places.push_back({mesh, {Replicate(), Replicate()}});
    places.push_back({mesh, {Shard(0), Shard(1)}});
    places.push_back({mesh, {Shard(0), Shard(0)}, {{0, {1, 0}}}});
    places.push_back({mesh, {Partial(), Shard(1)}});
    places.push_back({mesh, {Shard(0, {1, n - 1}), Replicate()}});
  }
  return places;
}

/// From the first host's ranks to the second's, and back.
void learn_through_meshes() {
  const Place first{DeviceMesh("cpu", {0, 1}), {Shard(0)}};
  const Place second{DeviceMesh("cpu", {3, 2}), {Shard(1)}};
  const Tensor numbers = counted({4, 3});
  const Tensor x = laid(numbers, first), w = laid(numbers + 1, second);
  x.requires_grad_();
  w.requires_grad_();
  sum(moved(x * x, second) * w).backward();
  if (first.mesh.has_this_rank())
    require_same(x.grad().full_tensor(), numbers * (numbers + 1) * 2, "the first host's gradient");
  else
    require_same(w.grad().full_tensor(), numbers * numbers, "the second host's gradient");
}

int meshes() {
  int moves = 0;
  for (const Shape& shape : {Shape{5, 7}, Shape{300, 257}}) {
    const int every = tensors::numel(shape) > kMany ? 7 : 1;
    moves += move_all(places_of_meshes(shape), counted(shape), every);
  }
  learn_through_meshes();
  return moves;
}

int async(const DeviceMesh& mesh) {
  int moves = 0;
  for (const Shape& shape : {Shape{5, 7}, Shape{300, 257}}) {
    const int every = tensors::numel(shape) > kMany ? 11 : 2;
    moves += move_all_in_pairs(plain_places(mesh, 2), counted(shape), every);
    moves += move_all_in_pairs(ragged_places(mesh, shape), counted(shape), every);
    moves += move_all_in_pairs(places_of_meshes(shape), counted(shape), every);
  }
  return moves;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Along the first axis over TCP, along the second one over shared memory.
[[noreturn]] void move_until_killed(const DeviceMesh& mesh, int killed) {
  // What dtrun ends because a rank has died is to say first what it was told.
  std::signal(SIGTERM, SIG_IGN);
  const Tensor x = ones({512, 256}, mesh, {Shard(0), Shard(1)});
  try {
    for (int move = 0;; ++move) {
      if (move == 40 && dist::get_rank() == killed) {
        print("rank {} ends at {:.6f}", killed, seconds_now());
        std::raise(SIGKILL);
      }
      x.redistribute({Shard(1), Shard(0)}).redistribute({Replicate(), Replicate()});
    }
  } catch (const Error& error) {
    print("rank {} told at {:.6f}: {}", dist::get_rank(), seconds_now(), error.summary());
    std::_Exit(3);
  }
}

std::optional<int> run(const std::string& part) {
  const DeviceMesh mesh = dist::init_device_mesh("cpu", {2, 2}, {"host", "rank"});
  if (part == "pairs") return pairs(mesh);
  if (part == "orders") return orders(mesh);
  if (part == "ragged") return ragged(mesh);
  if (part == "meshes") return meshes();
  if (part == "async") return async(mesh);
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  dist::init_process_group();
  if (part == "forever" && argc == 3)
    move_until_killed(dist::init_device_mesh("cpu", {2, 2}, {"host", "rank"}), std::stoi(argv[2]));
  const std::optional<int> moves = run(part);
  if (!moves) {
    print("no part '{}': pairs, orders, ragged, meshes, async or forever N", part);
    return 64;
  }
  print("rank {} {} right {}", dist::get_rank(), part, *moves);
  dist::destroy_process_group();
}
