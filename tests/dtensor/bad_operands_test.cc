// Every operator with an operand that does not go: on another mesh, local beside distributed ones,
// of another dtype or shape, undefined. It takes it, or says which call with which tensors that
// was, how they lie, why that does not go, and what to try.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "dtensor/explained.h"
#include "dtensor/operator_samples.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {
namespace {

/// "clamp_" of "clamp_, one bound".
std::string without_variant(const std::string& name) {
  return name.substr(0, name.find_first_of(" ,"));
}

/// As an error names the operator.
std::string called(const OperatorSample& sample) {
  static const std::map<std::string, std::string> kOfOperators = {
      {"&", "bitwise_and"}, {"bitor", "bitwise_or"},
      {"^", "bitwise_xor"}, {"~", "bitwise_not"},
      {"==", "eq"},         {"!=", "ne"},
      {"<", "lt"},          {"<=", "le"},
      {">", "gt"},          {">=", "ge"}};
  const std::string operators = "operator ";
  if (sample.name.starts_with(operators))
    return kOfOperators.at(sample.name.substr(operators.size()));
  const std::string name = without_variant(sample.name);
  return name == "stddev" ? "std" : name;
}

std::string told(const Tensor& tensor) {
  return tensor.is_distributed() ? tensor.spec().to_string()
                                 : tensors::shape_to_string(tensor.shape());
}

/// How many calls were taken, and how many refused.
struct Tally {
  int taken = 0;
  int refused = 0;
  std::set<std::string> takers;  ///< the samples that took one
};

/// What the error has to say.
Words words_for(const OperatorSample& sample, const Tensors& inputs, std::size_t bad) {
  // They transpose their input first: that is refused, or what is told is the transposed tensor.
  if (sample.name == "contiguous" || sample.name == "reshape, transposed") return {};
  Words words = {called(sample)};
  if (inputs[bad].defined()) words.push_back(told(inputs[bad]));
  for (const Tensor& input : inputs) {
    if (input.defined() && input.is_distributed()) words.push_back(told(input));
  }
  return words;
}

void call_with(const OperatorSample& sample, const Tensors& inputs, std::size_t bad,
               const std::string& what, Tally& tally) {
  try {
    sample.run(inputs);
    ++tally.taken;
    tally.takers.insert(sample.name);
  } catch (const base::Error& error) {
    // Of a sample that takes one of several pieces.
    if (error.summary().starts_with("a piece of a tensor")) return;
    ++tally.refused;
    EXPECT_EQ(missing_in(error, words_for(sample, inputs, bad)), "")
        << sample.name << ", input " << bad + 1 << " " << what << ": " << error.what();
  }
}

Tensors with(Tensors inputs, std::size_t which, const Tensor& other) {
  inputs[which] = other;
  return inputs;
}

/// Cut along their first dim.
Tensors on_mesh(const OperatorSample& sample, const DeviceMesh& mesh) {
  Tensors inputs;
  for (const Tensor& input : sample.inputs) {
    const Placement first = input.dim() > 0 ? Shard(0) : Replicate();
    inputs.push_back(distribute_tensor(input, mesh, {first}, {.source_rank = -1}));
  }
  return inputs;
}

Tensor with_shape(const Tensor& like, Shape shape) {
  return full(shape, 1, {.dtype = like.dtype()});
}

/// Shapes that hardly go with the other operands.
std::vector<Shape> odd_shapes(const Shape& shape) {
  std::vector<Shape> shapes = {{}, {0}, {7}};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    shapes.push_back(shape);
    shapes.back()[d] += 3;
  }
  shapes.push_back(shape);
  shapes.back().insert(shapes.back().begin(), 9);
  return shapes;
}

constexpr DType kOdd[] = {DType::boolean, DType::i64, DType::f16, DType::f32};

/// Every bad form of every input, on a mesh or not. @param place puts a local tensor there
void call_with_odd_inputs(const OperatorSample& sample, const Tensors& inputs,
                          const std::function<Tensor(const Tensor&)>& place, Tally& tally) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (const DType dtype : kOdd) {
      if (dtype == inputs[i].dtype()) continue;
      call_with(sample, with(inputs, i, inputs[i].to(dtype)), i,
                "of " + std::string(tensors::dtype_name(dtype)), tally);
    }
    for (const Shape& shape : odd_shapes(inputs[i].shape())) {
      call_with(sample, with(inputs, i, place(with_shape(inputs[i], shape))), i,
                "of shape " + tensors::shape_to_string(shape), tally);
    }
  }
}

void print(const char* what, const Tally& tally) {
  std::printf("%s: %d calls refused, %d taken\n", what, tally.refused, tally.taken);
}

TEST(BadOperandsTest, OddDtypesAndShapesAreTakenOrExplained) {
  Tally tally;
  for (const OperatorSample& sample : operator_samples(6, 4)) {
    call_with_odd_inputs(
        sample, sample.inputs, [](const Tensor& local) { return local; }, tally);
  }
  print("local", tally);
  EXPECT_GT(tally.refused, 500);
  EXPECT_GT(tally.taken, 500);
}

TEST(BadOperandsTest, OddDtypesAndShapesAreTakenOrExplainedOnAMesh) {
  const std::vector<OperatorSample> samples = operator_samples(6, 4);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    Tally tally;
    for (const OperatorSample& sample : samples) {
      call_with_odd_inputs(
          sample, on_mesh(sample, mesh),
          [&](const Tensor& local) {
            const Placement first = local.dim() > 0 ? Shard(0) : Replicate();
            return distribute_tensor(local, mesh, {first}, {.source_rank = -1});
          },
          tally);
    }
    EXPECT_EQ(sum(ones({4}, mesh, {Shard(0)})).item(), 4);  // the ranks are in step
    if (group.rank() == 0) print("on a mesh", tally);
    EXPECT_GT(tally.refused, 500);
    EXPECT_GT(tally.taken, 500);
  });
}

/// They ask for the shape of the other one only, wherever it is.
std::set<std::string> takers_of_shapes() {
  return {"expand_as", "reshape_as", "view_as"};
}

TEST(BadOperandsTest, AnotherMeshIsRefused) {
  const std::vector<OperatorSample> samples = operator_samples(6, 4);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh line(group, {2}, {"dp"}), square(group, {2, 1}, {"dp", "tp"});
    Tally tally;
    for (const OperatorSample& sample : samples) {
      const Tensors inputs = on_mesh(sample, line);
      for (std::size_t i = 0; inputs.size() > 1 && i < inputs.size(); ++i) {
        const Placement first = inputs[i].dim() > 0 ? Shard(0) : Replicate();
        const Tensor there =
            distribute_tensor(sample.inputs[i], square, {first, Replicate()}, {.source_rank = -1});
        call_with(sample, with(inputs, i, there), i, "on another mesh", tally);
      }
    }
    EXPECT_EQ(sum(ones({4}, line, {Shard(0)})).item(), 4);
    if (group.rank() == 0) print("another mesh", tally);
    EXPECT_GT(tally.refused, 100);
    EXPECT_EQ(tally.takers, takers_of_shapes());
  });
}

TEST(BadOperandsTest, ALocalTensorOfManyElementsIsRefusedBesideDistributedOnes) {
  const std::vector<OperatorSample> samples = operator_samples(6, 4);
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    Tally tally;
    for (const OperatorSample& sample : samples) {
      const Tensors inputs = on_mesh(sample, mesh);
      for (std::size_t i = 0; inputs.size() > 1 && i < inputs.size(); ++i) {
        if (inputs[i].numel() == 1) continue;
        call_with(sample, with(inputs, i, sample.inputs[i]), i, "as a local tensor", tally);
      }
    }
    EXPECT_EQ(sum(ones({4}, mesh, {Shard(0)})).item(), 4);
    if (group.rank() == 0) print("a local tensor", tally);
    EXPECT_GT(tally.refused, 100);
    std::set<std::string> takers = takers_of_shapes();
    takers.insert({"copy_", "copy_, broadcast"});  // a local one has place for all
    takers.insert("einsum ...,i->i");              // of the local one it takes the sum, a number
    EXPECT_EQ(tally.takers, takers);
  });
}

TEST(BadOperandsTest, AnUndefinedTensorIsRefused) {
  Tally tally;
  for (const OperatorSample& sample : operator_samples(6, 4)) {
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      // The samples of forms in place copy their first input.
      if (called(sample).ends_with('_') && i == 0) continue;
      // Its sample adds to the last one.
      if (sample.name == "clamp of tensors" && i == 2) continue;
      call_with(sample, with(sample.inputs, i, Tensor()), i, "undefined", tally);
    }
  }
  print("undefined", tally);
  EXPECT_GT(tally.refused, 200);
  std::set<std::string> operators;
  for (const std::string& name : tally.takers) operators.insert(without_variant(name));
  // What may be left out: a bound, a weight, a bias, a mask.
  EXPECT_EQ(operators,
            (std::set<std::string>{"clamp", "clamp_", "layer_norm", "rms_norm", "linear", "conv2d",
                                   "cross_entropy", "nll_loss", "scaled_dot_product_attention"}));
}

}  // namespace
}  // namespace dtrun::dtensor
