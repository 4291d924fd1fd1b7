// torch.distributed.tensor's first page, statement by statement: create, redistribute, multiply,
// look.
//
//     dtrun --nproc_per_node=4 distributed_tensor [--numbers] [--mistake dimension|barrier|missing]
//
// --numbers takes 0, 1, 2, ... for random numbers. --mistake makes one of the page's common errors,
// to show what is said of it.
#include <dtrun/dtrun.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

using namespace dtrun;

namespace {

void print_on_first(const std::string& text) {
  if (dist::get_rank() == 0) print("{}", text);
}

// Rank 0's call is another one than the others', or does not come at all.
void make_mistake(std::string_view mistake, const DTensor& tensor) {
  if (mistake == "dimension") {
    tensor.redistribute({Shard(2)});
  } else if (mistake == "barrier" && dist::get_rank() == 0) {
    dist::barrier();
  } else if (mistake == "missing" && dist::get_rank() == 0) {
    return;
  } else if (mistake != "barrier" && mistake != "missing") {
    throw Error(ErrorCode::kUsage, "--mistake=" + std::string(mistake) + " is none", "",
                "dimension, barrier or missing");
  } else {
    dist::all_reduce(ones(4), ReduceOp::sum, {.timeout = std::chrono::seconds(2)});
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  const bool numbers = !arguments.empty() && arguments.front() == "--numbers";
  const auto values = [&](int first) {
    return numbers ? arange(first, first + 16, {.dtype = DType::f32}).reshape({4, 4}) : randn(4, 4);
  };

  // Initialize distributed environment
  dist::init_process_group();

  // Create a device mesh (logical view of devices)
  const std::string device_type = dist::device().is_cpu() ? "cpu" : "cuda";
  const DeviceMesh device_mesh(device_type, arange(dist::get_world_size()));

  // Define a global tensor and shard it across devices
  const Tensor global_tensor = values(0).to(dist::device());
  const DTensor sharded_tensor =
      distribute_tensor(global_tensor, device_mesh, {Shard(0)});  // Shard along the first dimension
  if (dist::get_rank() == 0) print("Sharded Tensor: {}", sharded_tensor);
  if (arguments.size() == 2 && arguments.front() == "--mistake") {
    make_mistake(arguments.back(), sharded_tensor);
    return 0;
  }

  // Resharding: Change distribution strategy
  const DTensor resharded_tensor =
      sharded_tensor.redistribute(device_mesh, {Shard(1)});  // Now shard along the second dimension
  if (dist::get_rank() == 0) print("Resharded Tensor: {}", resharded_tensor);

  // Create another sharded tensor
  const DTensor tensor2 = distribute_tensor(values(16).to(dist::device()), device_mesh, {Shard(1)});

  // Distributed matmul
  const DTensor result = matmul(sharded_tensor, tensor2);
  if (dist::get_rank() == 0) print("Distributed Matmul Result: {}", result);
  print_on_first("Distributed Matmul Result, whole: " + result.full_tensor().to_string());

  // Common methods
  const Tensor shard = sharded_tensor.to_local();
  const Tensor whole = sharded_tensor.full_tensor();
  print_on_first("to_local(): " + shard.to_string());
  print_on_first("full_tensor(): " + whole.to_string());
  const Tensor total = sum(shard);
  dist::all_reduce(total);
  print_on_first("all_reduce(): " + total.to_string());
  dist::destroy_process_group();
}
