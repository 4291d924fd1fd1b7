// Strides: every operator gets the same numbers once more as views that are not contiguous. Results
// and gradients are those of contiguous inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>

#include "dtensor/operator_samples.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/creation.h"
#include "support/one_in.h"

namespace dtrun::dtensor {
namespace {

/// What lies between the elements of a view: nobody may read it.
Scalar garbage_of(DType dtype) {
  if (tensors::is_floating_point(dtype)) return std::nan("");
  return dtype == DType::boolean ? 1 : 113;
}

/// The same elements inside of a larger tensor whose dims have another order.
class Scattered {
 public:
  explicit Scattered(unsigned seed) : random_(seed) {}

  LocalTensor operator()(const LocalTensor& elements) {
    const auto dims = static_cast<std::size_t>(elements.dim());
    std::vector<int> order(dims), back(dims);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random_);
    for (std::size_t d = 0; d < dims; ++d)
      back[static_cast<std::size_t>(order[d])] = static_cast<int>(d);
    Shape around;
    std::vector<std::int64_t> before, step;
    for (const int d : order) {
      before.push_back(below(3));
      step.push_back(1 + below(3));
      around.push_back(before.back() + elements.size(d) * step.back() + below(2));
    }
    LocalTensor view = tensors::full(around, garbage_of(elements.dtype()), {elements.dtype()});
    for (std::size_t d = 0; d < dims; ++d) {
      const std::int64_t size = elements.size(order[d]);
      view = view.slice(static_cast<int>(d), before[d], before[d] + size * step[d], step[d]);
    }
    view = view.permute(back);
    view.copy_(elements);
    return view;
  }

 private:
  std::int64_t below(unsigned count) { return static_cast<std::int64_t>(random_() % count); }

  std::mt19937 random_;
};

/// The first slice of dim 0 for all of them: its stride is 0.
LocalTensor expanded(const LocalTensor& elements) {
  if (elements.dim() == 0 || elements.size(0) == 0) return elements;
  return elements.narrow(0, 0, 1).expand(elements.shape());
}

enum class Form { transposed, scattered, expanded };

Tensors laid(const Tensors& inputs, Form form, unsigned seed) {
  Scattered scattered(seed);
  Tensors views;
  for (const Tensor& input : inputs) {
    const LocalTensor elements = input.plain_local();
    if (form == Form::expanded) {
      views.emplace_back(expanded(elements));
    } else if (form == Form::scattered || elements.dim() < 2) {
      views.emplace_back(scattered(elements));
    } else {
      views.emplace_back(elements.transpose(0, -1).contiguous().transpose(0, -1));
    }
  }
  return views;
}

enum class Graph { none, wanted };

/// The result, and behind it the gradients; undefined where there is none.
Tensors results_of_views(const OperatorSample& sample, const Tensors& inputs, Graph graph) {
  Tensors leaves, wanted;
  for (const Tensor& input : inputs) {
    // The same elements: a copy would be contiguous.
    leaves.push_back(input.detach());
    if (graph == Graph::none || !tensors::is_floating_point(input.dtype())) continue;
    wanted.push_back(leaves.back().requires_grad_());
  }
  Tensors results = {sample.run(leaves)};
  if (!results[0].requires_grad()) return results;
  const Tensor weights = randn(results[0].shape(), {7}).to(results[0].dtype());
  for (const Tensor& gradient : grad(results, wanted, {weights})) results.push_back(gradient);
  return results;
}

bool is_alike(double found, double right, double tolerance) {
  if (std::isnan(right)) return std::isnan(found);
  if (found == right) return std::signbit(found) == std::signbit(right);
  return std::abs(found - right) <= tolerance;
}

/// @param tolerance in ends of the dtype, of the greatest element; 0: to the bit
std::string difference_of_views(const Tensors& found, const Tensors& right, double ends) {
  for (std::size_t i = 0; i < right.size(); ++i) {
    const std::string what = i == 0 ? "result " : "gradient " + std::to_string(i - 1) + " ";
    if (found[i].defined() != right[i].defined()) return what + "is there once only";
    if (!right[i].defined()) continue;
    if (found[i].shape() != right[i].shape() || found[i].dtype() != right[i].dtype())
      return what + "has another shape or dtype";
    const std::vector<double> a = found[i].to_vector(), b = right[i].to_vector();
    double greatest = 0;
    for (const double x : b) greatest = std::max(greatest, std::isfinite(x) ? std::abs(x) : 0);
    const double end = right[i].dtype() == DType::f64    ? 0x1p-52
                       : right[i].dtype() == DType::f32  ? 0x1p-23
                       : right[i].dtype() == DType::bf16 ? 0x1p-7
                                                         : 0;
    for (std::size_t e = 0; e < b.size(); ++e) {
      if (!is_alike(a[e], b[e], ends * end * greatest))
        return what + "element " + std::to_string(e) + " is " + std::to_string(a[e]) + ", not " +
               std::to_string(b[e]);
    }
  }
  return "";
}

/// "" where all is as it is of contiguous inputs, "refused" where both are refused.
std::string outcome_of_views(const OperatorSample& sample, const Tensors& views, Graph graph,
                             double ends) {
  Tensors copies, right;
  for (const Tensor& view : views) copies.emplace_back(view.plain_local().clone());
  bool is_refused = false;
  try {
    right = results_of_views(sample, copies, graph);
  } catch (const base::Error& error) {
    is_refused = true;
  }
  const Tensors before = copies;
  try {
    const Tensors found = results_of_views(sample, views, graph);
    if (is_refused) return "is refused of contiguous inputs only";
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (!difference_of_views({views[i]}, {copies[i]}, 0).empty()) return "an input has changed";
    }
    return difference_of_views(found, right, ends);
  } catch (const base::Error& error) {
    return is_refused ? "refused" : std::string("is refused of views only: ") + error.what();
  }
}

/// How far a result may be off: products of matrices add up in an order that depends on how they
/// lie. All else is equal to the bit.
double ends_of(const OperatorSample& sample) {
  return sample.family == "Products" ? 8 : 0;
}

/// As in PyTorch, view() makes no copy.
bool may_refuse_views(const OperatorSample& sample) {
  return sample.name.starts_with("view");
}

TEST(StridesTest, EveryOperatorOfViewsIsThatOfContiguousTensors) {
  std::size_t calls = 0, refused = 0, number = 0;
  for (const auto& [rows, columns] : {std::pair{3, 4}, {5, 2}, {7, 19}, {33, 70}}) {
    for (const OperatorSample& sample : operator_samples(rows, columns)) {
      for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i64, DType::boolean}) {
        for (const Form form : {Form::transposed, Form::scattered, Form::expanded}) {
          if (++number % testing_support::one_in(7) != 0) continue;
          const Tensors views = laid(sample.inputs_in(dtype), form, static_cast<unsigned>(number));
          for (const Graph graph : {Graph::none, Graph::wanted}) {
            const std::string wrong = outcome_of_views(sample, views, graph, ends_of(sample));
            ++calls;
            const bool is_no_view = may_refuse_views(sample) &&
                                    wrong.starts_with("is refused of views only") &&
                                    wrong.find("cannot view shape") != std::string::npos;
            if (wrong == "refused" || is_no_view) {
              ++refused;
              continue;
            }
            EXPECT_EQ(wrong, "") << sample.name << " of " << rows << " x " << columns << " in "
                                 << tensors::dtype_name(dtype) << ", form "
                                 << static_cast<int>(form);
          }
        }
      }
    }
  }
  std::printf("%zu calls, %zu of them refused\n", calls, refused);
  EXPECT_GT(calls, 20000U / testing_support::one_in(8));
  EXPECT_LT(refused, calls / 3);
}

}  // namespace
}  // namespace dtrun::dtensor
