// Fused operations over rows against their formulas in f64: rows of every length up to twice the
// lanes that a kernel holds, and rows of infinities and nans.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/rows.h"

namespace dtrun::tensors {
namespace {

using Numbers = std::vector<double>;

constexpr std::int64_t kRows = 5;
/// So large that the deviation of a short row magnifies no rounding.
constexpr double kEps = 0.1;
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr DType kFloats[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

double sum_of(const Numbers& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

template <typename Function>
Numbers mapped_numbers(const Numbers& a, const Function& function) {
  Numbers result;
  for (std::size_t i = 0; i < a.size(); ++i) result.push_back(function(i));
  return result;
}

double logsumexp_of(const Numbers& x) {
  if (std::any_of(x.begin(), x.end(), [](double each) { return std::isnan(each); })) return kNan;
  const double most = *std::max_element(x.begin(), x.end());
  if (std::isinf(most)) return most;
  return most + std::log(sum_of(mapped_numbers(x, [&](auto i) { return std::exp(x[i] - most); })));
}

/// Nan where the greatest is infinite, as in PyTorch.
Numbers log_softmax_of(const Numbers& x) {
  const double sum = logsumexp_of(x);
  return mapped_numbers(x, [&](auto i) { return std::isinf(sum) ? kNan : x[i] - sum; });
}
Numbers softmax_of(const Numbers& x) {
  const Numbers logs = log_softmax_of(x);
  return mapped_numbers(x, [&](auto i) { return std::exp(logs[i]); });
}

struct RowMoments {
  double mean, inverse_deviation;
};
/// @param centered no: of the root of the mean square
RowMoments moments_of_row(const Numbers& x, bool centered) {
  const auto count = static_cast<double>(x.size());
  const double mean = centered ? sum_of(x) / count : 0;
  const auto square = [&](auto i) { return (x[i] - mean) * (x[i] - mean); };
  return {mean, 1 / std::sqrt(sum_of(mapped_numbers(x, square)) / count + kEps)};
}
Numbers normalized(const Numbers& x, bool centered) {
  const RowMoments moments = moments_of_row(x, centered);
  return mapped_numbers(x,
                        [&](auto i) { return (x[i] - moments.mean) * moments.inverse_deviation; });
}
/// @param slopes of the normalized row
Numbers norm_gradient(const Numbers& x, const Numbers& slopes, bool centered) {
  const auto count = static_cast<double>(x.size());
  const Numbers y = normalized(x, centered);
  const double along = sum_of(mapped_numbers(x, [&](auto i) { return slopes[i] * y[i]; })) / count;
  const double average = centered ? sum_of(slopes) / count : 0;
  const double scale = moments_of_row(x, centered).inverse_deviation;
  return mapped_numbers(x, [&](auto i) { return scale * (slopes[i] - average - y[i] * along); });
}

/// Of numbers about 1: half a unit in the last place of a half, some units else.
double allowed(DType dtype) {
  return dtype == DType::f64   ? 1e-13
         : dtype == DType::f32 ? 3e-6
         : dtype == DType::f16 ? 5e-4
                               : 4e-3;
}

/// @param got [rows, ...] @param expected of a row, by its number
void expect_rows(const LocalTensor& got, const std::string& what,
                 const std::function<Numbers(std::int64_t)>& expected) {
  for (std::int64_t row = 0; row < got.size(0); ++row) {
    const Numbers found = got.select(0, row).to_vector(), right = expected(row);
    ASSERT_EQ(found.size(), right.size()) << what;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const bool same = std::isnan(right[i]) ? std::isnan(found[i])
                        : std::isinf(right[i])
                            ? found[i] == right[i]
                            : std::fabs(found[i] - right[i]) <=
                                  allowed(got.dtype()) * std::max(1.0, std::fabs(right[i]));
      ASSERT_TRUE(same) << what << " [" << row << ", " << i << "] is " << found[i] << ", not "
                        << right[i];
    }
  }
}

/// Of [rows, length] and a gradient of that shape.
struct RowCase {
  LocalTensor x, grad, weight, bias;

  static RowCase of(std::int64_t length, DType dtype) {
    const auto numbers = [&](const Shape& shape, std::uint64_t seed) {
      return randn(shape, {.seed = seed}, {DType::f64}).to(dtype);
    };
    return {numbers({kRows, length}, 1), numbers({kRows, length}, 2), numbers({length}, 3),
            numbers({length}, 4)};
  }
  Numbers row(std::int64_t r) const { return x.select(0, r).to_vector(); }
  Numbers grad_row(std::int64_t r) const { return grad.select(0, r).to_vector(); }
  Numbers weighed(const Numbers& numbers) const {
    const Numbers weights = weight.to_vector();
    return mapped_numbers(numbers, [&](auto i) { return numbers[i] * weights[i]; });
  }
};

void expect_softmax(const LocalTensor& x) {
  const auto row = [&](std::int64_t r) { return x.select(0, r).to_vector(); };
  expect_rows(softmax(x, 1), "softmax", [&](auto r) { return softmax_of(row(r)); });
  expect_rows(log_softmax(x, 1), "log_softmax", [&](auto r) { return log_softmax_of(row(r)); });
  expect_rows(logsumexp(x, {1}), "logsumexp",
              [&](auto r) { return Numbers{logsumexp_of(row(r))}; });
}

void expect_softmax_gradients(const RowCase& rows) {
  const LocalTensor y = softmax(rows.x, 1), logs = log_softmax(rows.x, 1);
  expect_rows(softmax_backward(rows.grad, y, 1), "softmax_backward", [&](auto r) {
    const Numbers g = rows.grad_row(r), out = y.select(0, r).to_vector();
    const double sum = sum_of(mapped_numbers(g, [&](auto i) { return g[i] * out[i]; }));
    return mapped_numbers(g, [&](auto i) { return (g[i] - sum) * out[i]; });
  });
  expect_rows(log_softmax_backward(rows.grad, logs, 1), "log_softmax_backward", [&](auto r) {
    const Numbers g = rows.grad_row(r), out = logs.select(0, r).to_vector();
    return mapped_numbers(g, [&](auto i) { return g[i] - std::exp(out[i]) * sum_of(g); });
  });
}

std::int64_t class_of_row(std::int64_t row, std::int64_t classes) {
  return row * 7 % classes;
}

void expect_cross_entropy(const RowCase& rows) {
  const std::int64_t classes = rows.x.size(1);
  const LocalTensor rights = remainder(arange(kRows) * 7, classes);
  const CrossEntropy found = cross_entropy_rows(rows.x, rights);
  expect_rows(found.loss, "cross_entropy", [&](auto r) {
    const Numbers x = rows.row(r);
    return Numbers{logsumexp_of(x) - x[static_cast<std::size_t>(class_of_row(r, classes))]};
  });
  expect_rows(found.logsumexp, "cross_entropy's logsumexp",
              [&](auto r) { return Numbers{logsumexp_of(rows.row(r))}; });
  const LocalTensor grad = rows.grad.select(1, 0).contiguous();
  const LocalTensor back = cross_entropy_rows_backward(grad, rows.x, rights, found.logsumexp);
  expect_rows(back, "cross_entropy_backward", [&](auto r) {
    Numbers slopes = softmax_of(rows.row(r));
    slopes[static_cast<std::size_t>(class_of_row(r, classes))] -= 1;
    return mapped_numbers(slopes, [&](auto i) { return slopes[i] * rows.grad_row(r)[0]; });
  });
}

void expect_layer_norm(const RowCase& rows) {
  const NormOptions options{.weight = rows.weight, .bias = rows.bias, .eps = kEps};
  const Normalized found = layer_norm(rows.x, options);
  const Numbers biases = rows.bias.to_vector();
  expect_rows(found.output, "layer_norm", [&](auto r) {
    const Numbers y = rows.weighed(normalized(rows.row(r), true));
    return mapped_numbers(y, [&](auto i) { return y[i] + biases[i]; });
  });
  expect_rows(layer_norm(rows.x, {.eps = kEps}).output, "layer_norm without weights",
              [&](auto r) { return normalized(rows.row(r), true); });
  const NormGradients back = layer_norm_backward(rows.grad, rows.x, found, options);
  expect_rows(back.a, "layer_norm_backward", [&](auto r) {
    return norm_gradient(rows.row(r), rows.weighed(rows.grad_row(r)), true);
  });
  Numbers of_weight(biases.size()), of_bias(biases.size());
  for (std::int64_t r = 0; r < kRows; ++r) {
    const Numbers g = rows.grad_row(r), y = normalized(rows.row(r), true);
    for (std::size_t i = 0; i < g.size(); ++i) {
      of_weight[i] += g[i] * y[i];
      of_bias[i] += g[i];
    }
  }
  expect_rows(back.weight.unsqueeze(0), "weight's gradient", [&](auto) { return of_weight; });
  expect_rows(back.bias.unsqueeze(0), "bias' gradient", [&](auto) { return of_bias; });
}

void expect_rms_norm(const RowCase& rows) {
  const NormOptions options{.weight = rows.weight, .eps = kEps};
  const Normalized found = rms_norm(rows.x, options);
  expect_rows(found.output, "rms_norm",
              [&](auto r) { return rows.weighed(normalized(rows.row(r), false)); });
  expect_rows(
      rms_norm_backward(rows.grad, rows.x, found, options).a, "rms_norm_backward",
      [&](auto r) { return norm_gradient(rows.row(r), rows.weighed(rows.grad_row(r)), false); });
}

TEST(RowFormulasTest, RowsOfEveryLengthAreWhatTheirFormulasSay) {
  for (const DType dtype : kFloats) {
    for (std::int64_t length = 1; length <= 130; ++length) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " rows of " << length);
      const RowCase rows = RowCase::of(length, dtype);
      expect_softmax(rows.x);
      expect_softmax_gradients(rows);
      expect_cross_entropy(rows);
      expect_layer_norm(rows);
      expect_rms_norm(rows);
      if (HasFatalFailure()) return;
    }
  }
}

/// Rows of the two in turn, and of the second with the first in one place.
std::vector<Numbers> rows_of(double first, double second) {
  std::vector<Numbers> rows{{first}, {first, second}, {second, first}};
  for (const std::size_t length : {20, 64, 2000}) {
    Numbers turns(length, second);
    for (std::size_t i = 0; i < length; i += 2) turns[i] = first;
    rows.push_back(turns);
    for (const std::size_t place : {std::size_t{0}, length / 2, length - 1}) {
      Numbers one(length, second);
      one[place] = first;
      rows.push_back(one);
    }
  }
  return rows;
}

void expect_cross_entropy_of_row(const LocalTensor& x, const Numbers& numbers, std::int64_t right) {
  const double score = numbers[static_cast<std::size_t>(right)];
  const CrossEntropy found = cross_entropy_rows(x, full({1}, right, {DType::i64}));
  expect_rows(found.loss, "cross_entropy", [&](auto) {
    // As -log_softmax, where an infinite score has no share.
    const double sum = logsumexp_of(numbers);
    return Numbers{std::isinf(sum) ? std::nan("") : sum - score};
  });
  const LocalTensor back = cross_entropy_rows_backward(
      full({1}, 2, {x.dtype()}), x, full({1}, right, {DType::i64}), found.logsumexp);
  expect_rows(back, "cross_entropy_backward", [&](auto) {
    Numbers slopes = softmax_of(numbers);
    slopes[static_cast<std::size_t>(right)] -= 1;
    return mapped_numbers(slopes, [&](auto i) { return 2 * slopes[i]; });
  });
}

TEST(RowFormulasTest, RowsOfInfinitiesAndNansAreWhatTheirFormulasSay) {
  const std::pair<double, double> pairs[] = {
      {kNan, kNan},    {kNan, 1},      {kNan, kInfinite},        {kNan, -kInfinite},
      {-kInfinite, 1}, {kInfinite, 1}, {-kInfinite, -kInfinite}, {kInfinite, -kInfinite}};
  for (const DType dtype : kFloats) {
    for (const auto& [first, second] : pairs) {
      for (const Numbers& numbers : rows_of(first, second)) {
        const auto length = static_cast<std::int64_t>(numbers.size());
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << length << " of " << first
                                        << " and " << second << ", first " << numbers[0]);
        const LocalTensor x = tensor_from(numbers, {1, length}, dtype);
        expect_softmax(x);
        for (const std::int64_t right : {std::int64_t{0}, length - 1})
          expect_cross_entropy_of_row(x, numbers, right);
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace dtrun::tensors
