// The operators against recorded results of PyTorch: values and gradients, for the files
// ops_*.jsonl of the folder that DTRUN_TEST_VECTORS names. For each operator it prints how many
// cases gave the value, were refused, were wrong, or are of an operator that is not there; a wrong
// one fails.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>

#include "dtensor/vector_tensor.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/creation.h"
#include "dtrun/dtensor/ops.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/views.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

using test::VectorCase;

/// The inputs and arguments of a case.
class Call {
 public:
  Call(const VectorCase& item, Tensors inputs)
      : args_(item.contains("args") ? item.at("args").as_object() : boost::json::object()),
        inputs_(std::move(inputs)) {}

  const Tensor& in(std::size_t i) const { return inputs_.at(i); }
  const Tensors& all() const { return inputs_; }
  bool has(const char* name) const { return args_.contains(name) && !args_.at(name).is_null(); }
  bool is_list(const char* name) const { return args_.at(name).is_array(); }
  std::int64_t integer(const char* name, std::int64_t otherwise = 0) const {
    return has(name) ? args_.at(name).to_number<std::int64_t>() : otherwise;
  }
  int dim(const char* name = "dim") const { return static_cast<int>(integer(name)); }
  /// A number as it is written: 2 or 2.0.
  Scalar number(const char* name) const {
    const boost::json::value& value = args_.at(name);
    if (value.is_bool()) return value.as_bool();
    if (value.is_int64()) return value.as_int64();
    return value.is_string() ? test::numbers_of(boost::json::array{value})[0]
                             : value.to_number<double>();
  }
  std::string text(const char* name) const { return test::text_of(args_.at(name)); }
  bool flag(const char* name) const { return has(name) && args_.at(name).as_bool(); }
  Shape sizes(const char* name) const { return test::sizes_of(args_.at(name)); }
  /// One dim, several, or none.
  std::vector<int> dims(const char* name = "dim") const {
    if (!has(name)) return {};
    const boost::json::value& value = args_.at(name);
    return value.is_array() ? test::ints_of(value) : std::vector<int>{dim(name)};
  }

 private:
  boost::json::object args_;
  Tensors inputs_;
};

using Operator = std::function<Tensors(const Call&)>;

Operator of_one(Tensor (*op)(const Tensor&)) {
  return [op](const Call& c) -> Tensors { return {op(c.in(0))}; };
}
Operator of_two(Tensor (*op)(const Tensor&, const Tensor&)) {
  return [op](const Call& c) -> Tensors { return {op(c.in(0), c.in(1))}; };
}
Operator with_number(Tensor (*op)(const Tensor&, Scalar)) {
  return [op](const Call& c) -> Tensors { return {op(c.in(0), c.number("other"))}; };
}
Operator number_with(Tensor (*op)(Scalar, const Tensor&)) {
  return [op](const Call& c) -> Tensors { return {op(c.number("other"), c.in(0))}; };
}

Reduction reduction_of(const Call& c) {
  const std::string name = c.text("reduction");
  return name == "none" ? Reduction::none : name == "sum" ? Reduction::sum : Reduction::mean;
}

/// PyTorch's squeeze() of all dims of one.
Tensor squeezed(const Tensor& a) {
  Tensor rest = a;
  for (int d = a.dim(); d-- > 0;) {
    if (a.size(d) == 1) rest = rest.squeeze(d);
  }
  return rest;
}

void add_pointwise(std::map<std::string, Operator>& table) {
  table["add"] = [](const Call& c) -> Tensors {
    return {add(c.in(0), c.has("alpha") ? mul(c.in(1), c.number("alpha")) : c.in(1))};
  };
  table["sub"] = [](const Call& c) -> Tensors {
    return {sub(c.in(0), c.has("alpha") ? mul(c.in(1), c.number("alpha")) : c.in(1))};
  };
  table["mul"] = of_two(mul);
  table["div"] = of_two(div);
  table["add_scalar"] = with_number(add);
  table["sub_scalar"] = with_number(sub);
  table["mul_scalar"] = with_number(mul);
  table["div_scalar"] = with_number(div);
  table["rsub_scalar"] = number_with(sub);
  table["scalar_div"] = number_with(div);
  table["eq_scalar"] = with_number(eq);
  table["gt_scalar"] = with_number(gt);
  table["lt_scalar"] = with_number(lt);
  const std::pair<const char*, Tensor (*)(const Tensor&)> unary[] = {{"abs", abs},
                                                                     {"neg", neg},
                                                                     {"sign", sign},
                                                                     {"square", square},
                                                                     {"floor", floor},
                                                                     {"ceil", ceil},
                                                                     {"round", round},
                                                                     {"trunc", trunc},
                                                                     {"sqrt", sqrt},
                                                                     {"rsqrt", rsqrt},
                                                                     {"exp", exp},
                                                                     {"log", log},
                                                                     {"log1p", log1p},
                                                                     {"expm1", expm1},
                                                                     {"sin", sin},
                                                                     {"cos", cos},
                                                                     {"tanh", tanh},
                                                                     {"atan", atan},
                                                                     {"erf", erf},
                                                                     {"sigmoid", sigmoid},
                                                                     {"relu", relu},
                                                                     {"silu", silu},
                                                                     {"isnan", isnan},
                                                                     {"logical_not", logical_not},
                                                                     {"reciprocal", reciprocal},
                                                                     {"zeros_like", zeros_like}};
  for (const auto& [name, op] : unary) table[name] = of_one(op);
  const std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)> binary[] = {
      {"eq", eq},
      {"ne", ne},
      {"lt", lt},
      {"le", le},
      {"gt", gt},
      {"ge", ge},
      {"maximum", maximum},
      {"minimum", minimum},
      {"logical_and", logical_and},
      {"logical_or", logical_or},
      {"logical_xor", logical_xor}};
  for (const auto& [name, op] : binary) table[name] = of_two(op);
  table["where"] = [](const Call& c) -> Tensors { return {where(c.in(0), c.in(1), c.in(2))}; };
  table["gelu"] = [](const Call& c) -> Tensors {
    return {gelu(c.in(0), c.text("approximate") == "tanh" ? GeluForm::tanh : GeluForm::erf)};
  };
  table["leaky_relu"] = [](const Call& c) -> Tensors {
    return {leaky_relu(c.in(0), c.number("negative_slope").to_double())};
  };
  table["softplus"] = [](const Call& c) -> Tensors { return {softplus(c.in(0))}; };
  table["to"] = [](const Call& c) -> Tensors {
    return {c.in(0).to(tensors::parse_dtype(c.text("dtype")))};
  };
}

/// On a copy of the first input.
void add_in_place(std::map<std::string, Operator>& table) {
  const auto on_copy = [](std::function<void(const Tensor&, const Call&)> change) -> Operator {
    return [change = std::move(change)](const Call& c) -> Tensors {
      const Tensor copy = c.in(0).clone();
      change(copy, c);
      return {copy};
    };
  };
  table["add_"] = on_copy([](const Tensor& a, const Call& c) { a.add_(c.in(1)); });
  table["sub_"] = on_copy([](const Tensor& a, const Call& c) { a.sub_(c.in(1)); });
  table["mul_"] = on_copy([](const Tensor& a, const Call& c) { a.mul_(c.in(1)); });
  table["copy_"] = on_copy([](const Tensor& a, const Call& c) { a.copy_(c.in(1)); });
  table["fill_"] = on_copy([](const Tensor& a, const Call& c) { a.fill_(c.number("value")); });
  table["zero_"] = on_copy([](const Tensor& a, const Call&) { a.zero_(); });
}

void add_reductions(std::map<std::string, Operator>& table) {
  table["sum"] = [](const Call& c) -> Tensors {
    return {sum(c.in(0), c.dims(), c.flag("keepdim"))};
  };
  table["mean"] = [](const Call& c) -> Tensors {
    return {mean(c.in(0), c.dims(), c.flag("keepdim"))};
  };
  table["mean_then_mul"] = [](const Call& c) -> Tensors {
    return {mean(c.in(0)) * c.number("other")};
  };
  table["sum_then_mul"] = [](const Call& c) -> Tensors {
    return {sum(c.in(0), c.dims()) * sum(c.in(1), c.dims())};
  };
  table["sum_then_add_scalar"] = [](const Call& c) -> Tensors {
    return {sum(c.in(0), c.dims()) + c.number("other")};
  };
  table["sum_then_relu"] = [](const Call& c) -> Tensors { return {relu(sum(c.in(0), c.dims()))}; };
  table["item_of_sum"] = [](const Call& c) -> Tensors {
    return {tensor_from(std::vector<double>{sum(c.in(0)).item()}, {}, c.in(0).dtype())};
  };
  table["softmax"] = [](const Call& c) -> Tensors { return {softmax(c.in(0), c.dim())}; };
  table["log_softmax"] = [](const Call& c) -> Tensors { return {log_softmax(c.in(0), c.dim())}; };
}

void add_views(std::map<std::string, Operator>& table) {
  table["view"] = [](const Call& c) -> Tensors { return {c.in(0).view(c.sizes("shape"))}; };
  table["reshape"] = [](const Call& c) -> Tensors { return {c.in(0).reshape(c.sizes("shape"))}; };
  table["expand"] = [](const Call& c) -> Tensors { return {c.in(0).expand(c.sizes("shape"))}; };
  table["flatten"] = [](const Call& c) -> Tensors {
    return {flatten(c.in(0), c.dim("start"), c.dim("end"))};
  };
  table["unflatten"] = [](const Call& c) -> Tensors {
    return {unflatten(c.in(0), c.dim(), c.sizes("sizes"))};
  };
  table["movedim"] = [](const Call& c) -> Tensors {
    return {movedim(c.in(0), c.dim("source"), c.dim("destination"))};
  };
  table["permute"] = [](const Call& c) -> Tensors { return {c.in(0).permute(c.dims("dims"))}; };
  table["repeat"] = [](const Call& c) -> Tensors { return {repeat(c.in(0), c.sizes("repeats"))}; };
  table["squeeze"] = [](const Call& c) -> Tensors {
    return {c.has("dim") ? c.in(0).squeeze(c.dim()) : squeezed(c.in(0))};
  };
  table["unsqueeze"] = [](const Call& c) -> Tensors { return {c.in(0).unsqueeze(c.dim())}; };
  table["t"] = [](const Call& c) -> Tensors { return {c.in(0).t()}; };
  table["transpose"] = [](const Call& c) -> Tensors {
    return {c.in(0).transpose(c.dim("dim0"), c.dim("dim1"))};
  };
  table["slice"] = [](const Call& c) -> Tensors {
    return {c.in(0).slice(c.dim(), c.integer("start"), c.integer("end", INT64_MAX),
                          c.integer("step", 1))};
  };
  table["narrow"] = [](const Call& c) -> Tensors {
    return {c.in(0).narrow(c.dim(), c.integer("start"), c.integer("length"))};
  };
  table["select"] = [](const Call& c) -> Tensors {
    return {c.in(0).select(c.dim(), c.integer("index"))};
  };
  table["cat"] = [](const Call& c) -> Tensors { return {cat(c.all(), c.dim())}; };
  table["stack"] = [](const Call& c) -> Tensors { return {stack(c.all(), c.dim())}; };
  table["split"] = [](const Call& c) {
    if (!c.is_list("size")) return split(c.in(0), c.integer("size"), c.dim());
    const Shape sizes = c.sizes("size");
    return split(c.in(0), std::vector<std::int64_t>(sizes.begin(), sizes.end()), c.dim());
  };
  table["unbind"] = [](const Call& c) { return unbind(c.in(0), c.dim()); };
  table["chunk"] = [](const Call& c) {
    // PyTorch leaves out the empty ones.
    Tensors chunks = chunk(c.in(0), c.dim("chunks"), c.dim());
    while (chunks.size() > 1 && chunks.back().size(c.dim()) == 0) chunks.pop_back();
    return chunks;
  };
}

void add_products(std::map<std::string, Operator>& table) {
  table["matmul"] = of_two(matmul);
  table["mm"] = of_two(mm);
  table["bmm"] = of_two(bmm);
  table["mv"] = of_two(mv);
  table["dot"] = of_two(dot);
  const auto factors = [](const Call& c) {
    return ProductSum{.beta = c.has("beta") ? c.number("beta") : Scalar(1),
                      .alpha = c.has("alpha") ? c.number("alpha") : Scalar(1)};
  };
  table["addmm"] = [factors](const Call& c) -> Tensors {
    return {addmm(c.in(0), c.in(1), c.in(2), factors(c))};
  };
  table["baddbmm"] = [factors](const Call& c) -> Tensors {
    return {baddbmm(c.in(0), c.in(1), c.in(2), factors(c))};
  };
  table["einsum"] = [](const Call& c) -> Tensors { return {einsum(c.text("equation"), c.all())}; };
  table["linear"] = [](const Call& c) -> Tensors {
    return {linear(c.in(0), c.in(1), c.all().size() > 2 ? c.in(2) : Tensor())};
  };
  table["mm_then_add_bias"] = [](const Call& c) -> Tensors {
    return {mm(c.in(0), c.in(1)) + c.in(2)};
  };
  table["mm_relu_mm"] = [](const Call& c) -> Tensors {
    return {mm(relu(mm(c.in(0), c.in(1))), c.in(2))};
  };
  table["mse_loss"] = [](const Call& c) -> Tensors {
    return {mse_loss(c.in(0), c.in(1), reduction_of(c))};
  };
  table["cross_entropy"] = [](const Call& c) -> Tensors {
    if (c.all().size() > 2 || c.has("label_smoothing")) {
      throw base::Error(base::ErrorCode::kUnavailable, "cross_entropy with weights or smoothing");
    }
    return {cross_entropy(
        c.in(0), c.in(1),
        {.reduction = reduction_of(c), .ignore_index = c.integer("ignore_index", -100)})};
  };
}

const std::map<std::string, Operator>& operators() {
  static const std::map<std::string, Operator> kTable = [] {
    std::map<std::string, Operator> table;
    add_pointwise(table);
    add_in_place(table);
    add_reductions(table);
    add_views(table);
    add_products(table);
    return table;
  }();
  return kTable;
}

Tensors inputs_of(const VectorCase& item, const DeviceMesh& mesh) {
  Tensors inputs;
  for (const boost::json::value& value : item.at("inputs").as_array()) {
    const boost::json::object& input = value.as_object();
    const Tensor tensor = placed_input(input, mesh);
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

/// The upstream gradients, sent back together.
void run_backward_of(const VectorCase& item, const Tensors& outputs) {
  const boost::json::array& gradients = item.at("grad_outputs").as_array();
  Tensor total;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (gradients[i].is_null() || !outputs[i].requires_grad()) continue;
    const LocalTensor upstream = tensor_of(gradients[i], outputs[i].shape(), outputs[i].dtype());
    Tensor weights(upstream);
    if (outputs[i].is_distributed()) {
      weights = distribute_tensor(weights, outputs[i].device_mesh(),
                                  Placements(outputs[i].placements().size(), Replicate()),
                                  {.source_rank = -1});
    }
    const Tensor part = sum(outputs[i] * weights);
    total = total.defined() ? total + part.to(total.dtype()) : part;
  }
  if (total.defined()) total.backward();
}

/// What is wrong with the case; empty where nothing is.
std::string run_case(const VectorCase& item, const Operator& op, const DeviceMesh& mesh) {
  const Tensors inputs = inputs_of(item, mesh);
  const Tensors outputs = op(Call(item, inputs));
  const boost::json::array& expected = item.at("outputs").as_array();
  if (outputs.size() != expected.size()) return "another number of results";
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const LocalTensor right = tensor_of(expected[i].as_object());
    const std::string wrong =
        difference(whole(outputs[i]).local(), right, tolerance_for(item, "exact", right.dtype()));
    if (!wrong.empty()) return "result " + std::to_string(i) + ": " + wrong;
  }
  if (!item.contains("grads") || item.at("grads").is_null()) return "";
  run_backward_of(item, outputs);
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

struct Count {
  int right = 0, refused = 0, refused_though_demanded = 0, wrong = 0, absent = 0;
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
      std::string wrong, refusal;
      if (op != operators().end()) {
        try {
          wrong = run_case(item, op->second, mesh);
        } catch (const base::Error& error) {
          refusal = error.what();
        } catch (const std::exception& error) {
          wrong = std::string("not an Error: ") + error.what();
        }
      }
      const std::lock_guard lock(mutex);
      if (!wrong.empty()) {
        ADD_FAILURE() << test::text_of(item.at("id")) << " on rank " << group.rank() << ": "
                      << wrong;
      }
      if (group.rank() != 0) continue;
      Count& count = counts[name];
      if (op == operators().end()) {
        ++count.absent;
      } else if (!refusal.empty()) {
        ++count.refused;
        if (test::text_of(item.at("demand")) == "value") {
          ++count.refused_though_demanded;
          std::printf("refused: %s: %s\n", test::text_of(item.at("id")).c_str(), refusal.c_str());
        }
      } else {
        ++(wrong.empty() ? count.right : count.wrong);
      }
    }
  });
}

TEST(OperatorVectorsTest, NoOperatorGivesAWrongValueOrGradient) {
  const char* const folder = std::getenv("DTRUN_TEST_VECTORS");
  if (folder == nullptr) GTEST_SKIP() << "DTRUN_TEST_VECTORS names no folder of ops_*.jsonl";
  std::map<std::vector<int>, std::vector<VectorCase>> by_mesh;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("ops_") || entry.path().extension() != ".jsonl") continue;
    for (VectorCase& item : test::read_vector_path(entry.path().string())) {
      if (item.contains("mesh")) by_mesh[test::ints_of(item.at("mesh"))].push_back(std::move(item));
    }
  }
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
  }
  std::printf("%-22s %6d %8d %6d %7d\n", "all", all.right, all.refused, all.wrong, all.absent);
  EXPECT_GT(all.right, 0) << "no case in " << folder;
}

}  // namespace
}  // namespace dtrun::dtensor
