// What distributed tensors can do, in eight parts: a mesh, ways to make a tensor, placements,
// operations, redistribution, a mesh of two axes, a network whose parameters are distributed, and
// the collectives behind it all.
//
//     dtrun --nproc_per_node=4 dtensor_demo      # 2, 4 or 8 ranks; a mesh of two axes needs 4
//     TORCH_LOGS=+dtensor dtrun --nproc_per_node=4 dtensor_demo
//
// It uses the GPUs where there are some. --backend NAME names another backend than it takes
// unasked: nccl where each rank has a GPU, staged where ranks share GPUs, cpu where there is none.
#include <dtrun/dtrun.h>
#include <dtrun/tensor/cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

using namespace dtrun;

namespace {

void title(const std::string& text) {
  dist::barrier();
  if (dist::get_rank() == 0) print("\n=== {} ===", text);
  dist::barrier();
}

/// Rank after rank, so that the lines of one stay together.
void in_turn(const std::function<void(int rank)>& speak) {
  for (int rank = 0; rank < dist::get_world_size(); ++rank) {
    if (rank == dist::get_rank()) speak(rank);
    dist::barrier();
  }
}

void show(const std::string& what, const DTensor& tensor) {
  in_turn([&](int rank) {
    print("[Rank {}] {}: global {}, local {}, placements {}", rank, what, tensor.shape(),
          tensor.to_local().shape(), tensor.placements());
  });
}

/// Which communication took place in a part of the program.
void show_communication(const std::string& what, const CommCounter& counter) {
  std::string text;
  for (const auto& [collective, count] : counter.by_collective()) {
    if (collective == "barrier") continue;  // in_turn()'s
    if (!text.empty()) text += ", ";
    text += std::to_string(count.calls) + " " + collective + " (" + std::to_string(count.bytes) +
            " bytes sent)";
  }
  if (dist::get_rank() == 0)
    print("[Rank 0] {}: {}", what, text.empty() ? "no communication" : text);
  dist::barrier();
}

/// Of a result: the first numbers of its first row.
void show_numbers(const std::string& what, const DTensor& result) {
  const Tensor first = result.full_tensor()[0];
  const Tensor numbers = first.slice(0, 0, std::min<std::int64_t>(4, first.size(0)));
  if (dist::get_rank() == 0) print("[Rank 0] {} begins with {}", what, numbers);
}

struct Meshes {
  std::string device;
  DeviceMesh line;
  std::optional<DeviceMesh> grid;
};

/// 1. A line of all ranks; a grid where there are enough.
Meshes set_up_meshes(const std::string& device) {
  title("1. Device mesh");
  const int ranks = dist::get_world_size();
  Meshes meshes{device, dist::init_device_mesh(device, {ranks}, {"ranks"}), {}};
  if (ranks >= 4 && ranks % 2 == 0) {
    meshes.grid = dist::init_device_mesh(device, {2, ranks / 2}, {"dp", "tp"});
  }
  in_turn([&](int rank) {
    print("[Rank {}] 1-D mesh {}: coordinate {}", rank, meshes.line.to_string(),
          meshes.line.coordinate());
    if (meshes.grid) {
      print("[Rank {}] 2-D mesh {}: coordinate {}", rank, meshes.grid->to_string(),
            meshes.grid->coordinate());
    }
  });
  return meshes;
}

/// On this rank's device of the mesh.
Tensor on_device(const Tensor& tensor, const DeviceMesh& mesh) {
  return mesh.device_type() == DeviceType::cuda
             ? tensor.to(Device{DeviceType::cuda, tensors::cuda::current_device()})
             : tensor;
}

/// 2. A whole tensor that is cut, parts that are put together, factories.
void make_tensors(const DeviceMesh& mesh) {
  title("2. Making distributed tensors");
  const int ranks = mesh.size();
  const Tensor whole =
      on_device(arange(4 * ranks, {.dtype = DType::f32}).view({2 * ranks, 2}), mesh);
  show("distribute_tensor()", distribute_tensor(whole, mesh, {Shard(0)}));
  show("distribute_tensor(), uneven",
       distribute_tensor(whole.slice(0, 0, 2 * ranks - 1), mesh, {Shard(0)}));
  const Tensor mine = on_device(full({2, 3}, dist::get_rank()), mesh);
  show("DTensor::from_local()", DTensor::from_local(mine, mesh, {Shard(0)}));
  show("zeros()", zeros({ranks, 4}, mesh, {Shard(0)}));
  show("ones()", ones({4, ranks}, mesh, {Shard(1)}));
  show("randn()", randn({ranks, ranks}, mesh, {Replicate()}));
}

/// 3. The same numbers, laid out in three ways.
void show_placements(const DeviceMesh& mesh) {
  title("3. Placements");
  const Tensor whole = on_device(arange(2 * mesh.size(), {.dtype = DType::f32}), mesh);
  const DTensor sharded = distribute_tensor(whole, mesh, {Shard(0)});
  const DTensor replicated = distribute_tensor(whole, mesh, {Replicate()});
  const DTensor partial = DTensor::from_local(on_device(ones({3}), mesh), mesh, {Partial()});
  in_turn([&](int rank) {
    print("[Rank {}] {}: {}", rank, sharded.placements(), sharded.to_local());
    print("[Rank {}] {}: {}", rank, replicated.placements(), replicated.to_local());
    print("[Rank {}] {}: {}", rank, partial.placements(), partial.to_local());
  });
  const Tensor sum = partial.full_tensor();
  if (dist::get_rank() == 0) print("[Rank 0] the Partial one, added up: {}", sum);
  visualize_sharding(sharded);
}

/// 4. Elements, products, reductions: how the result lies follows from how the operands do.
void operate(const DeviceMesh& mesh) {
  title("4. Operations");
  const std::int64_t n = 2 * mesh.size();
  const CommCounter counter;
  const DTensor a = ones({n, n}, mesh, {Shard(0)}), b = full({n, n}, 2, mesh, {Shard(0)});
  const DTensor added = a + b, multiplied = a * b;
  show("a + b", added);
  show("a * b", multiplied);
  const DTensor weight = ones({n, n}, mesh, {Replicate()});
  const DTensor product = matmul(a, weight);
  show("matmul(a, replicated)", product);
  const DTensor columns = a.redistribute({Shard(1)});
  const DTensor terms = matmul(columns, b);
  show("matmul(columns, rows)", terms);
  const DTensor total = (a + b).sum(), mean = (a * b).mean();
  show("sum()", total);
  const double of_all = total.item(), average = mean.item();
  if (dist::get_rank() == 0) print("[Rank 0] sum {}, mean {}", of_all, average);
  show_communication("operations", counter);
  show_numbers("a + b", added);
  show_numbers("a * b", multiplied);
  show_numbers("matmul(a, replicated)", product);
  show_numbers("matmul(columns, rows)", terms);
}

/// 5. From each layout to the others, with the collective that it takes.
void redistribute(const DeviceMesh& mesh) {
  title("5. Redistribution");
  const std::int64_t n = 2 * mesh.size();
  const Tensor whole = on_device(arange(n * n, {.dtype = DType::f32}).view({n, n}), mesh);
  const DTensor rows = distribute_tensor(whole, mesh, {Shard(0)});
  const DTensor all = distribute_tensor(whole, mesh, {Replicate()});
  const DTensor terms = DTensor::from_local(whole, mesh, {Partial()});
  const auto move = [](const std::string& what, const DTensor& from, const Placement& to) {
    const CommCounter counter;
    const DTensor moved = from.redistribute({to});
    show(what, moved);
    show_communication(what, counter);
  };
  move("Shard(0) to Replicate", rows, Replicate());
  move("Replicate to Shard(1)", all, Shard(1));
  move("Partial to Replicate", terms, Replicate());
  move("Partial to Shard(0)", terms, Shard(0));
  move("Shard(0) to Shard(1)", rows, Shard(1));
  if (dist::get_rank() == 0) print("{}", explain(rows, {Shard(1)}).to_string());
}

/// 6. Two dims cut along two axes, and mixtures.
void use_two_axes(const DeviceMesh& mesh) {
  title("6. A mesh of two axes");
  const DTensor both = randn({8, 8}, mesh, {Shard(0), Shard(1)});
  show("cut along both axes", both);
  show("cut along one, whole along the other", randn({8, 8}, mesh, {Shard(0), Replicate()}));
  const CommCounter counter;
  const DTensor samples = randn({8, 4}, mesh, {Shard(0), Replicate()});
  const DTensor weight = randn({4, 8}, mesh, {Replicate(), Shard(1)});
  show("samples times weight", matmul(samples, weight));
  show_communication("samples times weight", counter);
  visualize_sharding(both);
}

class NetworkModule : public nn::Module {
 public:
  NetworkModule(std::int64_t hidden, Device device)
      : up_(register_module("up", nn::Linear(8, hidden, {.device = device}))),
        down_(register_module("down", nn::Linear(hidden, 2, {.device = device}))) {}
  Tensor forward(const Tensor& x) override { return down_(relu(up_(x))); }

 private:
  nn::Linear up_, down_;
};
using Network = nn::ModuleHolder<NetworkModule>;

/// 7. The first layer's outputs and the second one's inputs are cut: one sum, at the end.
void distribute_a_network(const DeviceMesh& mesh) {
  title("7. A network with distributed parameters");
  const DTensor x = randn({6, 8}, mesh, {Replicate()});
  const Tensor whole = x.full_tensor();
  const Network network(4 * mesh.size(), whole.device());
  const Tensor loss_alone = network(whole).square().mean();
  const double alone = loss_alone.item();
  loss_alone.backward();
  const Tensor gradient_alone = network->get_parameter("down.weight").grad();
  network->zero_grad();
  distribute_module(
      *network, mesh,
      {.partition = [](const std::string& name, nn::Module& module, const DeviceMesh& on) {
        if (name == "up") {
          module.distribute_parameter("weight", on, {Shard(0)});
          module.distribute_parameter("bias", on, {Shard(0)});
        }
        if (name == "down") module.distribute_parameter("weight", on, {Shard(1)});
      }});
  for (const auto& [name, parameter] : network->named_parameters()) show(name, parameter);
  const CommCounter counter;
  const DTensor loss = network(x).square().mean();
  const double value = loss.item();
  if (dist::get_rank() == 0)
    print("[Rank 0] loss {:.5f}; of the whole network {:.5f}", value, alone);
  show_communication("forward", counter);
  const CommCounter way_back;
  loss.backward();
  show_communication("backward", way_back);
  for (const auto& [name, parameter] : network->named_parameters())
    show("gradient of " + name, parameter.grad());
  show_numbers("gradient of down.weight", network->get_parameter("down.weight").grad());
  if (dist::get_rank() == 0)
    print("[Rank 0] of the whole network it begins with {}", gradient_alone[0].slice(0, 0, 4));

  // Where each rank has samples of its own, the gradient of what all share is collected.
  const DTensor samples = randn({2 * mesh.size(), 8}, mesh, {Shard(0)});
  const DTensor shared = ones({8, 2}, mesh, {Replicate()}).requires_grad_();
  const CommCounter collected;
  matmul(samples, shared).square().mean().backward();
  show("gradient of a shared weight", shared.grad());
  show_communication("its collection", collected);
}

/// 8. The collectives by themselves.
void call_collectives(const DeviceMesh& mesh) {
  title("8. Collectives");
  const int ranks = mesh.size();
  const CommCounter counter;
  const Tensor one = on_device(full({2}, dist::get_rank() + 1), mesh);
  const Tensor sum = one.clone();
  dist::all_reduce(sum);
  const DTensor gathered = DTensor::from_local(one, mesh, {Shard(0)});
  const Tensor all = gathered.full_tensor();
  const DTensor terms = DTensor::from_local(on_device(ones({2 * ranks}), mesh), mesh, {Partial()});
  const DTensor scattered = terms.redistribute({Shard(0)});
  in_turn([&](int rank) {
    print("[Rank {}] all_reduce: {}", rank, sum);
    print("[Rank {}] all_gather: {}", rank, all);
    print("[Rank {}] reduce_scatter: {}", rank, scattered.to_local());
  });
  show_communication("collectives", counter);
}

/// GPUs have a backend of their own: nccl, or, where ranks share them, staged. How many ranks share
/// a node's is known of jobs that dtrun starts, and each rank asks for itself: where nodes have
/// unlike GPUs, or ranks see only their own, --backend must say it.
std::string backend() {
  const int gpus = tensors::cuda::device_count();
  if (gpus == 0) return "cpu";
  const char* const local_ranks = std::getenv("LOCAL_WORLD_SIZE");
  const bool has_each_one = local_ranks == nullptr || std::atoi(local_ranks) <= gpus;
  return has_each_one && dist::is_nccl_available() ? "cpu:cpu,cuda:nccl" : "cpu:cpu,cuda:staged";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 1 && (argc != 3 || argv[1] != std::string("--backend"))) {
    std::fprintf(stderr, "Usage: dtrun --nproc_per_node=4 dtensor_demo [--backend NAME]\n");
    return 64;
  }
  dist::init_process_group(argc == 3 ? argv[2] : backend());
  manual_seed(0);
  const Meshes meshes = set_up_meshes(dist::device().is_cpu() ? "cpu" : "cuda");
  make_tensors(meshes.line);
  show_placements(meshes.line);
  operate(meshes.line);
  redistribute(meshes.line);
  if (meshes.grid) {
    use_two_axes(*meshes.grid);
  } else {
    title("6. A mesh of two axes needs 4 ranks: dtrun --nproc_per_node=4 dtensor_demo");
  }
  distribute_a_network(meshes.line);
  call_collectives(meshes.line);
  title("All parts ran on " + std::to_string(dist::get_world_size()) + " ranks");
  dist::destroy_process_group();
}
