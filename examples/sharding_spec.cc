// ColossalAI's distributed tensors, statement by statement: a mesh of ranks and a shape, a sharding
// spec, a tensor that is cut by it, and the way from one sharding to another.
//
//     dtrun --nproc_per_node=4 sharding_spec
#include <dtrun/dtrun.h>

#include <map>
#include <vector>

using namespace dtrun;

namespace {

void print_on_first(const std::string& text) {
  if (dist::get_rank() == 0) print("{}", text);
}

// The pictures of the page: a 4 x 4 matrix on a mesh of 2 x 2.
void draw(const DeviceMesh& device_mesh) {
  const Tensor a = cat({arange(1, 5), arange(4, 16)}).reshape({4, 4});
  using Partition = std::map<int, std::vector<int>>;
  for (const Partition& dim_partition_dict : {Partition{{0, {0}}}, Partition{{0, {0, 1}}}}) {
    const ShardingSpec sharding_spec(a.dim(), dim_partition_dict);
    const DTensor cut(a, device_mesh, sharding_spec);
    print_on_first(sharding_spec.to_string() + "\n" + shards_text(cut));
  }
}

// The converter's way, and the one that redistribute() takes because it costs less.
void convert(const DeviceMesh& device_mesh) {
  const ShardingSpec from(3, {{1, {0, 1}}}), to(3, {{0, {0, 1}}});
  const Shape global_shape = {16, 16, 8};
  print_on_first(convert_layout(from, to, global_shape, device_mesh.shape()).to_string());
  const DTensor x(arange(16 * 16 * 8).reshape(global_shape), device_mesh, from);
  const Layout target = to.layout(global_shape, device_mesh.shape());
  const DTensor y = x.redistribute(target.placements(), target.order());
  print_on_first(
      "redistributed to " + y.sharding_spec().to_string() +
      (equal(y.to_global(), x.to_global()) ? ": the same elements" : ": other elements"));
}

}  // namespace

int main() {
  dist::init_process_group();  // colossalai.launch_from_torch(config={})

  // define your device mesh
  // assume you have 4 ranks
  const Tensor physical_mesh_id = arange(0, 4);
  const std::vector<int> mesh_shape = {2, 2};
  const DeviceMesh device_mesh(physical_mesh_id, mesh_shape, {.init_process_group = true});

  // define a tensor
  manual_seed(0);
  const Tensor a = rand(16, 32).to(dist::device());

  // create sharding spec for the tensor
  // assume the sharding spec is [S0, R]
  const std::map<int, std::vector<int>> dim_partition_dict = {{0, {0}}};
  const ShardingSpec sharding_spec(a.dim(), dim_partition_dict);

  // create a distributed tensor
  const DTensor d_tensor(a, device_mesh, sharding_spec);
  if (dist::get_rank() == 0) print("{}", d_tensor);

  const Tensor global_tensor = d_tensor.to_global();
  if (dist::get_rank() == 0) print("{}", global_tensor);
  print_on_first(equal(global_tensor, a) ? "to_global() gives a" : "to_global() gives another one");

  draw(device_mesh);
  convert(device_mesh);
  dist::destroy_process_group();
}
