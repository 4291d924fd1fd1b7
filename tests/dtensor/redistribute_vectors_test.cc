// Every case of the redistribute vectors, on ranks that are threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "dtensor/vector_tensor.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using boost::json::object;
using test::VectorCase;

bool stands_at(int coordinate, const DeviceMesh& mesh) {
  return std::ranges::all_of(mesh.coordinate(), [=](int c) { return c == coordinate; });
}

/// The case's result on this rank.
DTensor redistributed(const VectorCase& item, const DeviceMesh& mesh) {
  const std::string op = test::text_of(item.at("op"));
  const object& args = item.at("args").as_object();
  if (op == "factory") {
    const tensors::Shape shape = test::sizes_of(args.at("shape"));
    const Placements to = placements_of(args.at("to"));
    const tensors::DType dtype = tensors::parse_dtype(test::text_of(args.at("dtype")));
    const std::string name = test::text_of(args.at("name"));
    if (name == "full") return full(shape, args.at("value").to_number<double>(), mesh, to, dtype);
    return name == "ones" ? ones(shape, mesh, to, dtype) : zeros(shape, mesh, to, dtype);
  }
  const object& input = item.at("inputs").as_array().at(0).as_object();
  if (op == "distribute_tensor") {
    DistributeOptions options;
    const boost::json::value& source = args.at("src_data_rank");
    options.source_rank = source.is_null() ? -1 : static_cast<int>(source.as_int64());
    options.shard_order = order_of(args.if_contains("to_order"));
    LocalTensor tensor = tensor_of(input);
    if (options.source_rank >= 0 && !stands_at(options.source_rank, mesh)) {
      // Only the source rank's data counts.
      tensor = tensors::full(tensor.shape(), 99, {.dtype = tensor.dtype()});
    }
    return distribute_tensor(tensor, mesh, placements_of(args.at("to")), options);
  }
  if (op == "from_local") {
    const object& local =
        item.at("from_locals").as_array()[static_cast<std::size_t>(mesh.rank())].as_object();
    const tensors::DType dtype = tensors::parse_dtype(test::text_of(input.at("dtype")));
    DTensor::FromLocal options;
    options.has_shape = args.at("give_shape").as_bool();
    if (options.has_shape) options.shape = test::sizes_of(input.at("shape"));
    return DTensor::from_local(
        tensor_of(local.at("value"), test::sizes_of(local.at("shape")), dtype), mesh,
        placements_of(args.at("placements")), options);
  }
  const DTensor placed = placed_input(input, mesh);
  if (op == "full_tensor") return placed;
  return placed.redistribute(placements_of(args.at("to")), order_of(args.if_contains("to_order")));
}

/// Everything that the case says of the result. Collective.
void expect_as_demanded(const VectorCase& item, const DTensor& result) {
  const LocalTensor expected = tensor_of(item.at("outputs").as_array().at(0).as_object());
  const Tolerance tolerance = tolerance_of(item);
  EXPECT_EQ(difference(result.full_tensor(), expected, tolerance), "");
  const Box box = result.spec().local_box();
  if (const boost::json::value* ranks = item.if_contains("ranks")) {
    const std::size_t rank = static_cast<std::size_t>(result.device_mesh().rank());
    EXPECT_EQ(result.to_local().shape(), test::sizes_of(ranks->at("shapes").as_array()[rank]));
    EXPECT_EQ(box.offsets, test::sizes_of(ranks->at("offsets").as_array()[rank]));
  }
  for (const Placement& placement : result.placements()) {
    if (placement.is_partial()) return;
  }
  EXPECT_EQ(difference(result.to_local(), cut(expected, box), tolerance), "");
}

/// The number of PyTorch's collectives.
std::int64_t collectives_in(const VectorCase& item, const std::string& name) {
  std::int64_t count = 0;
  for (const auto& [kind, times] : item.at("torch").at(name).as_object()) count += times.as_int64();
  return count;
}

/// The gradient on the way back, and no more collectives than PyTorch's either way. Collective.
void expect_gradient(const VectorCase& item, const DeviceMesh& mesh) {
  const object& args = item.at("args").as_object();
  const DTensor input = placed_input(item.at("inputs").at(0).as_object(), mesh);
  input.requires_grad_();
  CommCounter counter;
  const bool is_full = item.at("op") == "full_tensor";
  const DTensor result = is_full ? input.full_tensor()
                                 : input.redistribute(placements_of(args.at("to")),
                                                      order_of(args.if_contains("to_order")));
  const bool has_counts = item.at("torch").as_object().contains("comm_backward");
  if (has_counts) {
    EXPECT_LE(counter.get_total_counts(), collectives_in(item, "comm")) << counter;
  }
  DTensor upstream = tensor_of(item.at("grad_outputs").at(0), input.shape(), input.dtype());
  if (!is_full) {
    upstream = distribute_tensor(
        upstream, mesh, without_partials(result.placements()),
        {.source_rank = -1, .shard_order = without_partials(result.spec().layout()).order()});
  }
  counter.reset();
  result.backward(upstream);
  if (has_counts) {
    EXPECT_LE(counter.get_total_counts(), collectives_in(item, "comm_backward")) << counter;
  }
  const LocalTensor expected = tensor_of(item.at("grads").at(0), input.shape(), input.dtype());
  EXPECT_EQ(difference(input.grad().full_tensor(), expected, tolerance_of(input.dtype())), "");
}

/// No more collectives than PyTorch's, of which it is known how many it took. Collective.
/// @return whether it is known
bool expect_few_collectives(const VectorCase& item, const DeviceMesh& mesh) {
  if (item.at("demand") != "value" || !item.at("torch").as_object().contains("comm")) return false;
  const CommCounter counter;
  const DTensor result = redistributed(item, mesh);
  if (item.at("op") == "full_tensor") result.full_tensor();
  EXPECT_LE(counter.get_total_counts(), collectives_in(item, "comm")) << counter;
  return true;
}

/// Of the cases by themselves.
struct CaseCounts {
  std::map<std::string, std::size_t> compared;  ///< with PyTorch's collectives, by operation
  std::size_t right_where_pytorch_refuses = 0;
};

void run_case(const VectorCase& item, const DeviceMesh& mesh, CaseCounts& counts) {
  SCOPED_TRACE(test::text_of(item.at("id")));
  if (item.contains("grads")) expect_gradient(item, mesh);
  const bool refusal_allowed = item.at("demand") != "value";
  try {
    const DTensor result = redistributed(item, mesh);
    EXPECT_NE(item.at("demand"), "error");
    if (item.at("demand") != "error") expect_as_demanded(item, result);
    if (expect_few_collectives(item, mesh)) ++counts.compared[test::text_of(item.at("op"))];
    if (item.at("status") == "error") ++counts.right_where_pytorch_refuses;
  } catch (const Error& error) {
    EXPECT_TRUE(refusal_allowed) << error.what();
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    // Only what makes no sense is refused.
    EXPECT_EQ(item.at("demand"), "error") << error.what();
  }
}

/// Shards that are not cut as torch.chunk cuts, passed without the global shape.
bool is_ragged(const VectorCase& item) {
  return item.at("op") == "from_local" && item.at("demand") != "value";
}

TEST(RedistributeVectorsTest, EveryCaseGivesWhatItDemands) {
  std::map<std::vector<int>, std::vector<VectorCase>> by_mesh;
  std::size_t cases = 0, gradients = 0;
  for (VectorCase& item : test::read_vector_file("redistribute")) {
    gradients += item.contains("grads") ? 1 : 0;
    if (!is_ragged(item)) {
      by_mesh[test::ints_of(item.at("mesh"))].push_back(std::move(item));
      ++cases;
    }
  }
  test::expect_cases(cases, 3075);
  test::expect_cases(gradients, 2388);
  CaseCounts counts;
  for (const auto& [shape, items] : by_mesh) {
    int world = 1;
    for (const int size : shape) world *= size;
    test::run_ranks(world, [&](const collectives::ProcessGroup& group) {
      const DeviceMesh mesh(group, shape);
      CaseCounts others;
      for (const VectorCase& item : items)
        run_case(item, mesh, group.rank() == 0 ? counts : others);
    });
  }
  std::size_t all = 0;
  for (const auto& [op, count] : counts.compared) {
    std::printf("%zu cases of %s take no more collectives than PyTorch's\n", count, op.c_str());
    all += count;
  }
  // All that PyTorch takes, with and without gradients.
  test::expect_cases(all, 2870);
  std::printf("%zu cases that PyTorch refuses are right\n", counts.right_where_pytorch_refuses);
  test::expect_cases(counts.right_where_pytorch_refuses, 189);
}

/// What PyTorch refuses of all files: the other tests say that each of them is right here which
/// makes sense and says what its sizes are.
TEST(RedistributeVectorsTest, AllThatPyTorchRefusesIsAskedForHereUnlessItMakesNoSense) {
  std::size_t cases = 0, refused = 0, senseless = 0, ragged = 0;
  for (const char* name :
       {"collectives", "colossal", "layout", "redistribute", "ops_index", "ops_matmul", "ops_nn",
        "ops_pointwise", "ops_reduction", "ops_view", "training", "training_modules"}) {
    for (const VectorCase& item : test::read_vector_file(name)) {
      ++cases;
      if (item.at("status") != "error") continue;
      ++refused;
      senseless += item.at("demand") == "error" ? 1 : 0;
      ragged += is_ragged(item) ? 1 : 0;
    }
  }
  const std::size_t asked = refused - senseless - ragged;
  std::printf(
      "PyTorch refuses %zu of %zu cases: %zu work here, %zu make no sense, %zu do not say "
      "what their sizes are\n",
      refused, cases, asked, senseless, ragged);
  test::expect_cases(cases, 9271);
  test::expect_cases(refused, 532);
  test::expect_cases(asked, 325 + 189);  // of OperatorVectorsTest, and of this file
}

TEST(RedistributeVectorsTest, RaggedShardsAreRefusedAndNeverAnsweredWrongly) {
  std::size_t cases = 0;
  for (const VectorCase& item : test::read_vector_file("redistribute")) {
    if (!is_ragged(item)) continue;
    SCOPED_TRACE(test::text_of(item.at("id")));
    ++cases;
    const std::vector<int> shape = test::ints_of(item.at("mesh"));
    test::run_ranks(shape[0], [&](const collectives::ProcessGroup& group) {
      const DeviceMesh mesh(group, shape);
      EXPECT_THROW(redistributed(item, mesh).full_tensor(), Error);
    });
  }
  test::expect_cases(cases, 4);
}

}  // namespace
}  // namespace dtrun::dtensor
