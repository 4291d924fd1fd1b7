// The operators against recorded results of PyTorch: values and gradients, for the files
// ops_*.jsonl of tests/vectors, or of the folder that DTRUN_TEST_VECTORS names. For each operator
// it prints how many cases gave the value, were refused, were wrong, or are of an operator that is
// not there; a wrong one fails. So does one that takes more collectives, forward and back, than in
// PyTorch, but for some with a reason.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "dtensor/operators/operators.h"
#include "dtensor/vector_counts.h"
#include "dtensor/vector_tensor.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/cuda.h"
#include "support/one_in.h"
#include "support/rank_threads.h"
#include "tensor/simulated_devices.h"

namespace dtrun::dtensor {
namespace {

using test::VectorCase;

constexpr std::size_t kStep = testing_support::one_in(16);

const vectors::Operators& operators() {
  static const vectors::Operators kTable = [] {
    vectors::Operators table;
    vectors::add_pointwise(table);
    vectors::add_in_place(table);
    vectors::add_reductions(table);
    vectors::add_views(table);
    vectors::add_products(table);
    vectors::add_index(table);
    vectors::add_rows(table);
    return table;
  }();
  return kTable;
}

using PlaceInput = std::function<Tensor(const boost::json::object& input)>;

Tensors inputs_of(const VectorCase& item, const PlaceInput& place) {
  Tensors inputs;
  for (const boost::json::value& value : item.at("inputs").as_array()) {
    const boost::json::object& input = value.as_object();
    const Tensor tensor = place(input);
    const boost::json::value* wanted = input.if_contains("requires_grad");
    if (wanted != nullptr && wanted->as_bool()) tensor.requires_grad_();
    inputs.push_back(tensor);
  }
  return inputs;
}

Tolerance tolerance_for(const VectorCase& item, const char* exact, DType dtype) {
  return item.contains(exact) && item.at(exact).as_bool() ? Tolerance{0, 0} : tolerance_of(dtype);
}

Tensor whole(const Tensor& tensor) {
  return tensor.is_distributed() ? tensor.full_tensor() : tensor;
}

std::int64_t counted(const std::function<void()>& run) {
  const CommCounter counter;
  run();
  return counter.get_total_counts();
}

/// The upstream gradients, sent back together.
void run_backward_of(const VectorCase& item, const Tensors& outputs, Collectives& taken) {
  taken.both_ways = taken.forward;
  const boost::json::array& gradients = item.at("grad_outputs").as_array();
  Tensor total;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (gradients[i].is_null() || !outputs[i].requires_grad()) continue;
    const LocalTensor upstream = tensor_of(gradients[i], outputs[i].shape(), outputs[i].dtype());
    Tensor weights(upstream.to(outputs[i].local().device()));
    if (outputs[i].is_distributed()) {
      weights = distribute_tensor(weights, outputs[i].device_mesh(),
                                  Placements(outputs[i].placements().size(), Replicate()),
                                  {.source_rank = -1});
    }
    const Tensor part = sum(outputs[i] * weights);
    total = total.defined() ? total + part.to(total.dtype()) : part;
  }
  if (!total.defined()) return;
  *taken.both_ways += counted([&] { total.backward(); });
}

/// What is wrong with the case; empty where nothing is.
std::string run_case(const VectorCase& item, const vectors::Operator& op, const PlaceInput& place,
                     CaseCollectives& collectives) {
  const Tensors inputs = inputs_of(item, place);
  collectives.of_pytorch = collectives_of_pytorch(item, inputs);
  Collectives& taken = collectives.taken;
  Tensors outputs;
  taken.forward = counted([&] { outputs = op(vectors::Call(item, inputs)); });
  const boost::json::array& expected = item.at("outputs").as_array();
  if (outputs.size() != expected.size()) return "another number of results";
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const LocalTensor right = tensor_of(expected[i].as_object());
    const std::string wrong =
        difference(whole(outputs[i]).local(), right, tolerance_for(item, "exact", right.dtype()));
    if (!wrong.empty()) return "result " + std::to_string(i) + ": " + wrong;
  }
  if (!item.contains("grads") || item.at("grads").is_null()) return "";
  run_backward_of(item, outputs, taken);
  const boost::json::array& gradients = item.at("grads").as_array();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (gradients[i].is_null() || !inputs[i].requires_grad()) continue;
    const LocalTensor right = tensor_of(gradients[i], inputs[i].shape(), inputs[i].dtype());
    const Tensor found = inputs[i].grad().defined()
                             ? whole(inputs[i].grad())
                             : Tensor(tensors::zeros(right.shape(), {right.dtype()}));
    const std::string wrong =
        difference(found.local(), right, tolerance_for(item, "exact_grads", right.dtype()));
    if (!wrong.empty()) return "gradient " + std::to_string(i) + ": " + wrong;
  }
  return "";
}

/// In `wrong` or `refusal` what came instead of the value.
struct Outcome {
  std::string wrong, refusal;
  CaseCollectives collectives;
};
Outcome try_case(const VectorCase& item, const vectors::Operator& op, const PlaceInput& place) {
  Outcome outcome;
  try {
    outcome.wrong = run_case(item, op, place, outcome.collectives);
  } catch (const base::Error& error) {
    outcome.refusal = error.what();
  } catch (const std::exception& error) {
    outcome.wrong = std::string("not an Error: ") + error.what();
  }
  return outcome;
}

struct Count {
  int right = 0, refused = 0, refused_though_demanded = 0, wrong = 0, absent = 0;
  /// Whose collectives are compared with PyTorch's, and those of them that have no way back.
  int compared = 0, compared_forward_only = 0;
  /// By id: cases that take more forward, and not more forward and back.
  std::map<std::string, std::string> more_forward;
  int right_where_pytorch_refuses = 0;
  /// By id: cases that take more than in PyTorch.
  std::map<std::string, std::string> more_collectives;

  void add(const VectorCase& item, const CaseCollectives& collectives) {
    if (!collectives.of_pytorch) return;
    ++compared;
    compared_forward_only += collectives.are_of_forward_only() ? 1 : 0;
    if (!collectives.are_more() && !collectives.are_more_forward()) return;
    (collectives.are_more() ? more_collectives : more_forward)
        .emplace(test::text_of(item.at("id")), collectives.to_string() + ": " + described(item));
  }
};

void run_on_mesh(const std::vector<int>& shape, const std::vector<VectorCase>& items,
                 std::map<std::string, Count>& counts) {
  int world = 1;
  for (const int size : shape) world *= size;
  std::mutex mutex;
  test::run_ranks(world, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, shape);
    for (const VectorCase& item : items) {
      const std::string name = test::text_of(item.at("op"));
      const auto op = operators().find(name);
      const auto place = [&mesh](const boost::json::object& input) {
        return placed_input(input, mesh);
      };
      const auto [wrong, refusal, collectives] =
          op != operators().end() ? try_case(item, op->second, place) : Outcome{};
      const std::lock_guard lock(mutex);
      if (!wrong.empty()) {
        ADD_FAILURE() << test::text_of(item.at("id")) << " on rank " << group.rank() << ": "
                      << wrong;
      }
      if (group.rank() != 0) continue;
      Count& count = counts[name];
      if (op == operators().end()) {
        ++count.absent;
      } else if (test::text_of(item.at("demand")) == "error") {
        ++(refusal.empty() ? count.wrong : count.right);
        EXPECT_NE(refusal, "") << test::text_of(item.at("id")) << " must be refused";
      } else if (!refusal.empty()) {
        ++count.refused;
        if (test::text_of(item.at("demand")) == "value") {
          ++count.refused_though_demanded;
          std::printf("refused: %s: %s\n", test::text_of(item.at("id")).c_str(), refusal.c_str());
        }
      } else {
        ++(wrong.empty() ? count.right : count.wrong);
        const bool pytorch_refuses = item.at("status") == "error";
        count.right_where_pytorch_refuses += pytorch_refuses && wrong.empty() ? 1 : 0;
        count.add(item, collectives);
      }
    }
  });
}

using CasesByMesh = std::map<std::vector<int>, std::vector<VectorCase>>;

std::string case_folder() {
  const std::string given = test::given_vector_folder();
  return given.empty() ? test::vector_folder() : given;
}

CasesByMesh read_cases(const std::string& folder) {
  CasesByMesh by_mesh;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("ops_") || entry.path().extension() != ".jsonl") continue;
    std::size_t number = 0;
    for (VectorCase& item : test::read_vector_path(entry.path().string())) {
      if (number++ % kStep != 0) continue;
      if (item.contains("mesh")) by_mesh[test::ints_of(item.at("mesh"))].push_back(std::move(item));
    }
  }
  return by_mesh;
}

/// Cases that take more collectives than in PyTorch, forward and back together.
struct MoreCollectives {
  const char* reason;
  std::set<std::string> cases;
};
const std::map<std::string, MoreCollectives>& known_to_take_more() {
  constexpr const char* kRounds =
      "each rank's part would be rounded, or wrap, by itself, and the sum be another";
  static const std::map<std::string, MoreCollectives> kKnown = {
      {"to",
       {kRounds,
        {"23496fb8ac8e", "d8663ffd0041", "251fb46d9ab6", "510e254fd294", "ed482644ad8d",
         "400fa1d76a24", "a260b3803c50", "08a1cc5fd629", "2f1d01bd1f55", "e84fec3565c5",
         "50d0ef092e09", "b3589c87aa25", "9f259c91b784", "2757165578ed"}}},
      {"sum", {kRounds, {"6b9c6a53710b", "1b8e42462d4a", "ab871e59e79c"}}},
      {"sub", {kRounds, {"cfa246fe783f", "9342c70139c8"}}}};
  return kKnown;
}

/// How many cases take more collectives forward alone, though no more forward and back: a sum, or
/// the last step of a norm, that PyTorch's result still lacks, comes here where it spares the way
/// back as many.
const std::map<std::string, std::size_t>& known_to_take_more_forward() {
  static const std::map<std::string, std::size_t> kKnown = {{"addmm", 9},
                                                            {"baddbmm", 1},
                                                            {"bmm", 2},
                                                            {"cat", 3},
                                                            {"cross_entropy", 2},
                                                            {"div", 2},
                                                            {"einsum", 8},
                                                            {"matmul", 2},
                                                            {"linear", 1},
                                                            {"mm", 14},
                                                            {"mul", 1},
                                                            {"mm_relu_mm", 1},
                                                            {"mm_then_add_bias", 1},
                                                            {"mse_loss", 4},
                                                            {"rms_norm", 1},
                                                            {"sum_then_mul", 4},
                                                            {"sum_then_norm", 4},
                                                            {"vector_norm", 14}};
  return kKnown;
}

/// "ops_nn/linear/7e7caae94c47" -> "7e7caae94c47"
std::string number_of(const std::string& id) {
  return id.substr(id.rfind('/') + 1);
}

/// Prints them. Of the tree's cases it is known which they are.
void expect_few_collectives(const std::map<std::string, Count>& counts) {
  const bool all_of_the_tree = test::given_vector_folder().empty() && kStep == 1;
  static const MoreCollectives kNone = {"nobody knows why", {}};
  std::map<std::string, MoreCollectives> unseen = known_to_take_more();
  for (const auto& [name, count] : counts) {
    const auto known = known_to_take_more().find(name);
    const bool is_known = known != known_to_take_more().end();
    const MoreCollectives& expected = is_known ? known->second : kNone;
    std::set<std::string> found;
    for (const auto& [id, text] : count.more_collectives) {
      found.insert(number_of(id));
      std::printf("%s\n", text.c_str());
    }
    for (const auto& [id, text] : count.more_forward)
      std::printf("forward only, %s\n", text.c_str());
    if (!found.empty()) {
      std::printf("%s: %zu take more collectives than in PyTorch: %s\n", name.c_str(), found.size(),
                  expected.reason);
    }
    unseen.erase(name);
    if (all_of_the_tree) {
      EXPECT_EQ(found, expected.cases) << name;
      const auto forward = known_to_take_more_forward().find(name);
      const std::size_t of_forward =
          forward == known_to_take_more_forward().end() ? 0 : forward->second;
      EXPECT_EQ(count.more_forward.size(), of_forward) << name << ", forward alone";
    }
  }
  if (!all_of_the_tree) return;
  for (const auto& [name, never] : unseen) ADD_FAILURE() << "no case is of " << name;
}

TEST(OperatorVectorsTest, NoOperatorIsWrongOrSendsMoreOftenThanPyTorchs) {
  const std::string folder = case_folder();
  const CasesByMesh by_mesh = read_cases(folder);
  std::map<std::string, Count> counts;
  for (const auto& [shape, items] : by_mesh) run_on_mesh(shape, items, counts);
  Count all;
  std::printf("%-22s %6s %8s %6s %7s\n", "operator", "right", "refused", "wrong", "absent");
  for (const auto& [name, count] : counts) {
    std::printf("%-22s %6d %8d %6d %7d\n", name.c_str(), count.right, count.refused, count.wrong,
                count.absent);
    all.right += count.right;
    all.refused += count.refused;
    all.wrong += count.wrong;
    all.absent += count.absent;
    all.compared += count.compared;
    all.compared_forward_only += count.compared_forward_only;
    all.more_forward.insert(count.more_forward.begin(), count.more_forward.end());
    all.right_where_pytorch_refuses += count.right_where_pytorch_refuses;
    all.refused_though_demanded += count.refused_though_demanded;
  }
  expect_few_collectives(counts);
  std::printf("%-22s %6d %8d %6d %7d\n", "all", all.right, all.refused, all.wrong, all.absent);
  std::printf(
      "%d cases' collectives are compared, %d of them forward only; forward alone, %zu take "
      "more\n",
      all.compared, all.compared_forward_only, all.more_forward.size());
  EXPECT_GT(all.right, 0) << "no case in " << folder;
  EXPECT_EQ(all.refused_though_demanded, 0);
  std::printf("%d cases that PyTorch refuses are right\n", all.right_where_pytorch_refuses);
  // Of the tree's none is.
  test::expect_cases(static_cast<std::size_t>(all.refused), 0);
  test::expect_cases(static_cast<std::size_t>(all.absent), 0);
  if (kStep == 1) {
    test::expect_cases(static_cast<std::size_t>(all.compared), 3386);
    test::expect_cases(static_cast<std::size_t>(all.compared_forward_only), 610);
    test::expect_cases(all.more_forward.size(), 74);
    test::expect_cases(static_cast<std::size_t>(all.right_where_pytorch_refuses), 325);
  }
}

/// Each case without its mesh: the whole tensors on a simulated device.
TEST(OperatorVectorsTest, NoOperatorIsWrongOrRefusedOnADevice) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const tensors::cuda::SimulatedDevices devices;
  constexpr tensors::Device kGpu{tensors::DeviceType::cuda, 0};
  const auto place = [](const boost::json::object& input) {
    return Tensor(tensor_of(input).to(kGpu));
  };
  int right = 0;
  std::map<std::string, int> refusals;
  for (const auto& [shape, items] : read_cases(case_folder())) {
    for (const VectorCase& item : items) {
      const std::string name = test::text_of(item.at("op"));
      const auto op = operators().find(name);
      if (op == operators().end() || item.at("inputs").as_array().empty()) continue;
      const auto [wrong, refusal, collectives] = try_case(item, op->second, place);
      if (!wrong.empty()) ADD_FAILURE() << test::text_of(item.at("id")) << ": " << wrong;
      if (!refusal.empty() && test::text_of(item.at("demand")) == "value") {
        ++refusals[name + ": " + refusal];
      }
      right += wrong.empty() && refusal.empty() ? 1 : 0;
    }
  }
  for (const auto& [refusal, count] : refusals) ADD_FAILURE() << count << " x " << refusal;
  std::printf("on a device: %d right\n", right);
  EXPECT_GT(right, 0);
}

}  // namespace
}  // namespace dtrun::dtensor
