// The fused operations over rows; kernels/row_kernel.cc and norm_kernel.cc compute them.
#include "dtrun/tensor/ops/rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cuda/rows.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "element.h"
#include "kernels/norm_kernel.h"
#include "kernels/row_kernel.h"
#include "loops/row_loop.h"
#include "ops/class_of_row.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

[[noreturn]] void refuse_rows(std::string summary, std::string why, std::string remedy = {}) {
  throw Error(ErrorCode::kInvalidArgument, std::move(summary), std::move(why), std::move(remedy));
}

void require_floating(std::string_view name, const LocalTensor& a) {
  if (is_floating_point(a.dtype())) return;
  refuse_rows(fmt::format("{} does not take {} tensors", name, dtype_name(a.dtype())),
              "its result has a fraction", "to(DType::f32) first");
}

void require_alike(std::string_view name, const LocalTensor& a, const LocalTensor& b) {
  require_one_device(name, a, b);
  if (a.shape() == b.shape() && is_floating_point(b.dtype())) return;
  refuse_rows(
      fmt::format("{} of {} {} and {} {}", name, dtype_name(a.dtype()), shape_to_string(a.shape()),
                  dtype_name(b.dtype()), shape_to_string(b.shape())),
      "both must be floating point, of one shape");
}

DType row_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

/// Calls function(TypeTag<A>{}), where A is the type that rows are computed in.
template <typename Function>
void with_row_type(DType compute, Function&& function) {
  if (compute == DType::f64) return function(TypeTag<double>{});
  function(TypeTag<float>{});
}

/// Of operands out and in.
template <typename A>
Rows<A> rows_of(const Lines& lines, std::int64_t length) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(A));
  return {.out = static_cast<A*>(lines.data[0]),
          .in = static_cast<const A*>(lines.data[1]),
          .out_step = lines.steps[0] / kSize,
          .in_step = lines.steps[1] / kSize,
          .rows = lines.count,
          .count = length};
}

int line_dim(const LocalTensor& a, int dim) {
  return normalize_dim(dim, std::max<std::size_t>(a.shape().size(), 1));
}

using cuda::SoftmaxForm;

LocalTensor run_softmax(std::string_view name, SoftmaxForm form, const LocalTensor& a, int dim) {
  require_floating(name, a);
  const LocalTensor out = empty(a.shape(), {a.dtype(), a.device()});
  const int along = line_dim(a, dim);
  if (!a.device().is_cpu()) {
    cuda::softmax_rows(form, out, a, along);
    return out;
  }
  const LineOperand operands[] = {{&out, Flow::out}, {&a, Flow::in}};
  const DType compute = row_dtype(a.dtype());
  const std::int64_t length = a.dim() == 0 ? 1 : a.size(along);
  with_row_type(compute, [&](auto tag) {
    using A = typename decltype(tag)::Type;
    const auto kernel =
        form == SoftmaxForm::plain ? &RowKernels<A>::softmax : &RowKernels<A>::log_softmax;
    for_each_lines(along, compute, operands,
                   [&](const Lines& lines) { kernel(rows_of<A>(lines, length)); });
  });
  return out;
}

LocalTensor run_softmax_backward(std::string_view name, SoftmaxForm form, const LocalTensor& grad,
                                 const LocalTensor& output, int dim) {
  require_floating(name, grad);
  require_alike(name, grad, output);
  const LocalTensor out = empty(output.shape(), {output.dtype(), output.device()});
  const int along = line_dim(output, dim);
  if (!output.device().is_cpu()) {
    cuda::softmax_rows_backward(form, out, grad, output, along);
    return out;
  }
  const LineOperand operands[] = {{&out, Flow::out}, {&grad, Flow::in}, {&output, Flow::in}};
  const DType compute = row_dtype(output.dtype());
  const std::int64_t length = output.dim() == 0 ? 1 : output.size(along);
  with_row_type(compute, [&](auto tag) {
    using A = typename decltype(tag)::Type;
    const auto kernel = form == SoftmaxForm::plain ? &RowKernels<A>::softmax_backward
                                                   : &RowKernels<A>::log_softmax_backward;
    for_each_line(along, compute, operands, [&](std::int64_t, void* const* rows) {
      kernel(static_cast<A*>(rows[0]), static_cast<const A*>(rows[1]),
             static_cast<const A*>(rows[2]), length);
    });
  });
  return out;
}

/// A tensor as rows, each of which is normalized.
struct NormRows {
  LocalTensor flat;  ///< [rows, length]
  std::int64_t rows = 1;
  std::int64_t length = 1;
  DType compute = DType::f32;
  LocalTensor weight;  ///< computed, contiguous; or undefined
  LocalTensor bias;

  template <typename A>
  const A* weight_data() const {
    return weight.defined() ? weight.data_as<const A>() : nullptr;
  }
  template <typename A>
  const A* bias_data() const {
    return bias.defined() ? bias.data_as<const A>() : nullptr;
  }
};

LocalTensor norm_parameter(std::string_view name, const LocalTensor& a,
                           const std::optional<LocalTensor>& parameter, const Shape& normalized) {
  if (!parameter) return {};
  require_floating(name, *parameter);
  require_one_device(name, a, *parameter);
  if (parameter->shape() == normalized) {
    return parameter->to(row_dtype(a.dtype())).contiguous();
  }
  refuse_rows(fmt::format("{} of shape {} with a weight or bias of shape {}", name,
                          shape_to_string(a.shape()), shape_to_string(parameter->shape())),
              "weight and bias have the shape of the last dims of the tensor");
}

NormRows norm_rows(std::string_view name, const LocalTensor& a, const NormOptions& options) {
  require_floating(name, a);
  const int dims = options.weight ? options.weight->dim()
                   : options.bias ? options.bias->dim()
                                  : options.dims;
  if (dims < 1 || dims > a.dim()) {
    refuse_rows(
        fmt::format("{} of shape {} over its last {} dims", name, shape_to_string(a.shape()), dims),
        fmt::format("it has {}", a.dim()));
  }
  NormRows result;
  const Shape normalized(a.shape().end() - dims, a.shape().end());
  const Shape outer(a.shape().begin(), a.shape().end() - dims);
  result.rows = numel(outer);
  result.length = numel(normalized);
  result.compute = row_dtype(a.dtype());
  result.flat = a.reshape({result.rows, result.length});
  result.weight = norm_parameter(name, a, options.weight, normalized);
  result.bias = norm_parameter(name, a, options.bias, normalized);
  return result;
}

using cuda::NormForm;

template <typename A>
typename NormKernels<A>::Moments moments_of(NormForm form, const A* in, A eps,
                                            std::int64_t length) {
  if (form == NormForm::layer) return NormKernels<A>::moments(in, eps, length);
  return {A{0}, NormKernels<A>::inverse_root_mean_square(in, eps, length)};
}

Normalized normalize(std::string_view name, NormForm form, const LocalTensor& a,
                     const NormOptions& options) {
  const NormRows rows = norm_rows(name, a, options);
  const LocalTensor out = empty({rows.rows, rows.length}, {a.dtype(), a.device()});
  Normalized result{out.view(a.shape()), {}, empty({rows.rows}, {rows.compute, a.device()})};
  if (form == NormForm::layer) result.mean = empty({rows.rows}, {rows.compute, a.device()});
  if (rows.length == 0) {  // of nothing
    for (const LocalTensor& moments : {result.mean, result.inverse_deviation}) {
      if (moments.defined()) moments.fill_(std::numeric_limits<double>::quiet_NaN());
    }
  }
  if (!a.device().is_cpu()) {
    cuda::norm_rows_forward(form, out, rows.flat,
                            {result.mean, result.inverse_deviation, rows.weight, rows.bias},
                            options.eps);
    return result;
  }
  const LineOperand operands[] = {{&out, Flow::out}, {&rows.flat, Flow::in}};
  with_row_type(rows.compute, [&](auto tag) {
    using A = typename decltype(tag)::Type;
    A* const means = form == NormForm::layer ? result.mean.template data_as<A>() : nullptr;
    A* const deviations = result.inverse_deviation.template data_as<A>();
    const A* const weight = rows.template weight_data<A>();
    const A* const bias = rows.template bias_data<A>();
    const A eps = static_cast<A>(options.eps);
    using Kernels = NormKernels<A>;
    const auto centered = form == NormForm::layer ? Kernels::Centered::yes : Kernels::Centered::no;
    for_each_lines(1, rows.compute, operands, [&](const Lines& lines) {
      Kernels::norm(rows_of<A>(lines, rows.length),
                    means != nullptr ? means + lines.first : nullptr, deviations + lines.first,
                    centered, eps, weight, bias);
    });
  });
  return result;
}

/// One partial sum per chunk: no two threads add to the same one, and the order of summation is
/// fixed.
LocalTensor chunk_sums(const std::optional<LocalTensor>& parameter, const NormRows& rows) {
  if (!parameter) return {};
  const std::int64_t a_chunk = lines_a_chunk(rows.length);
  return zeros({(rows.rows + a_chunk - 1) / a_chunk, rows.length}, {rows.compute});
}

LocalTensor parameter_gradient(const std::optional<LocalTensor>& parameter,
                               const LocalTensor& sums) {
  if (!parameter) return {};
  return sum(sums, {0}).to(parameter->dtype()).view(parameter->shape());
}

NormGradients normalize_backward_on_device(NormForm form, const LocalTensor& grad,
                                           const LocalTensor& a, const NormRows& rows,
                                           const Normalized* forward, const NormOptions& options) {
  const auto make = [&](const Shape& shape, DType dtype) {
    return empty(shape, {dtype, a.device()});
  };
  cuda::NormTensors tensors{{}, {}, rows.weight, {}};
  if (forward != nullptr) {
    tensors.mean = forward->mean;
    tensors.inverse_deviation = forward->inverse_deviation;
  } else {
    if (form == NormForm::layer) tensors.mean = make({rows.rows}, rows.compute);
    tensors.inverse_deviation = make({rows.rows}, rows.compute);
    cuda::norm_rows_moments(form, rows.flat, tensors, options.eps);
  }
  const LocalTensor out = make({rows.rows, rows.length}, a.dtype());
  const LocalTensor flat_grad = grad.reshape({rows.rows, rows.length});
  cuda::norm_rows_backward(form, out, flat_grad, rows.flat, tensors);
  const Shape sums_shape = {cuda::norm_chunks(rows.rows), rows.length};
  cuda::NormSums sums;
  if (options.weight) sums.weight = make(sums_shape, rows.compute);
  if (options.bias) sums.bias = make(sums_shape, rows.compute);
  if (options.weight || options.bias) cuda::norm_rows_sums(sums, flat_grad, rows.flat, tensors);
  return {out.view(a.shape()), parameter_gradient(options.weight, sums.weight),
          parameter_gradient(options.bias, sums.bias)};
}

NormGradients normalize_backward(std::string_view name, NormForm form, const LocalTensor& grad,
                                 const LocalTensor& a, const Normalized* forward,
                                 const NormOptions& options) {
  const NormRows rows = norm_rows(name, a, options);
  require_alike(name, a, grad);
  if (!a.device().is_cpu())
    return normalize_backward_on_device(form, grad, a, rows, forward, options);
  const LocalTensor out = empty({rows.rows, rows.length}, {a.dtype()});
  const LocalTensor flat_grad = grad.reshape({rows.rows, rows.length});
  const LocalTensor weight_sums = chunk_sums(options.weight, rows);
  const LocalTensor bias_sums = chunk_sums(options.bias, rows);
  const LineOperand operands[] = {
      {&out, Flow::out}, {&flat_grad, Flow::in}, {&rows.flat, Flow::in}};
  with_row_type(rows.compute, [&](auto tag) {
    using A = typename decltype(tag)::Type;
    using Kernels = NormKernels<A>;
    const bool centered = form == NormForm::layer;
    const A eps = static_cast<A>(options.eps);
    const auto moments = [&](std::int64_t row, const A* in) -> typename Kernels::Moments {
      if (forward == nullptr) return moments_of<A>(form, in, eps, rows.length);
      return {centered ? forward->mean.template data_as<const A>()[row] : A{0},
              forward->inverse_deviation.template data_as<const A>()[row]};
    };
    const auto sums_of = [&](const LocalTensor& sums, std::int64_t row) {
      if (!sums.defined()) return static_cast<A*>(nullptr);
      return sums.template data_as<A>() + row / lines_a_chunk(rows.length) * rows.length;
    };
    for_each_line(1, rows.compute, operands, [&](std::int64_t row, void* const* lines) {
      const A* const in = static_cast<const A*>(lines[2]);
      Kernels::normalize_backward(
          static_cast<A*>(lines[0]), static_cast<const A*>(lines[1]), in, moments(row, in),
          rows.template weight_data<A>(), sums_of(weight_sums, row), sums_of(bias_sums, row),
          centered ? Kernels::Centered::yes : Kernels::Centered::no, rows.length);
    });
  });
  return {out.view(a.shape()), parameter_gradient(options.weight, weight_sums),
          parameter_gradient(options.bias, bias_sums)};
}

void require_classes(std::string_view name, const LocalTensor& logits, const LocalTensor& target) {
  require_floating(name, logits);
  require_one_device(name, logits, target);
  if (logits.dim() == 2 && target.dim() == 1 && target.dtype() == DType::i64 &&
      target.size(0) == logits.size(0))
    return;
  refuse_rows(fmt::format("{} of {} {} and classes {} {}", name, dtype_name(logits.dtype()),
                          shape_to_string(logits.shape()), dtype_name(target.dtype()),
                          shape_to_string(target.shape())),
              "scores are [rows, classes], the right classes int64 [rows]");
}

}  // namespace

LocalTensor softmax(const LocalTensor& a, int dim) {
  return run_softmax("softmax", SoftmaxForm::plain, a, dim);
}
LocalTensor log_softmax(const LocalTensor& a, int dim) {
  return run_softmax("log_softmax", SoftmaxForm::log, a, dim);
}
LocalTensor softmax_backward(const LocalTensor& grad, const LocalTensor& output, int dim) {
  return run_softmax_backward("softmax_backward", SoftmaxForm::plain, grad, output, dim);
}
LocalTensor log_softmax_backward(const LocalTensor& grad, const LocalTensor& output, int dim) {
  return run_softmax_backward("log_softmax_backward", SoftmaxForm::log, grad, output, dim);
}

Normalized layer_norm(const LocalTensor& a, const NormOptions& options) {
  return normalize("layer_norm", NormForm::layer, a, options);
}
Normalized rms_norm(const LocalTensor& a, const NormOptions& options) {
  return normalize("rms_norm", NormForm::root_mean_square, a, options);
}
NormGradients layer_norm_backward(const LocalTensor& grad, const LocalTensor& a,
                                  const Normalized& forward, const NormOptions& options) {
  return normalize_backward("layer_norm_backward", NormForm::layer, grad, a, &forward, options);
}
NormGradients rms_norm_backward(const LocalTensor& grad, const LocalTensor& a,
                                const Normalized& forward, const NormOptions& options) {
  return normalize_backward("rms_norm_backward", NormForm::root_mean_square, grad, a, &forward,
                            options);
}
NormGradients layer_norm_backward(const LocalTensor& grad, const LocalTensor& a,
                                  const NormOptions& options) {
  return normalize_backward("layer_norm_backward", NormForm::layer, grad, a, nullptr, options);
}
NormGradients rms_norm_backward(const LocalTensor& grad, const LocalTensor& a,
                                const NormOptions& options) {
  return normalize_backward("rms_norm_backward", NormForm::root_mean_square, grad, a, nullptr,
                            options);
}

CrossEntropy cross_entropy_rows(const LocalTensor& logits, const LocalTensor& target,
                                std::int64_t ignored) {
  require_classes("cross_entropy", logits, target);
  const DType compute = row_dtype(logits.dtype());
  const std::int64_t rows = logits.size(0), classes = logits.size(1);
  const LocalTensor loss = zeros({logits.size(0)}, {compute, logits.device()});
  const LocalTensor logsumexp = zeros({logits.size(0)}, {compute, logits.device()});
  if (!logits.device().is_cpu()) {
    cuda::cross_entropy_losses({loss, logsumexp}, logits,
                               device_classes("cross_entropy", target, classes, ignored), ignored);
    return {loss.to(logits.dtype()), logsumexp};
  }
  const LocalTensor chosen = target.contiguous();
  // Without classes there are no lines to visit.
  for (std::int64_t row = 0; classes == 0 && row < chosen.numel(); ++row) {
    const std::int64_t right = chosen.data_as<const std::int64_t>()[row];
    if (right != ignored) require_class("cross_entropy", right, row, classes, rows);
  }
  const LineOperand operands[] = {{&logits, Flow::in}};
  with_row_type(compute, [&](auto tag) {
    using A = typename decltype(tag)::Type;
    const auto* const rights = chosen.data_as<const std::int64_t>();
    A* const sums = logsumexp.template data_as<A>();
    A* const losses = loss.template data_as<A>();
    for_each_lines(1, compute, operands, [=](const Lines& lines) {
      const A* const scores = static_cast<const A*>(lines.data[0]);
      const auto step = lines.steps[0] / static_cast<std::int64_t>(sizeof(A));
      RowKernels<A>::logsumexp({.out = sums + lines.first,
                                .in = scores,
                                .out_step = 1,
                                .in_step = step,
                                .rows = lines.count,
                                .count = classes});
      for (std::int64_t i = 0; i < lines.count; ++i) {
        const std::int64_t row = lines.first + i, right = rights[row];
        // An infinite score has no share: nan, as log_softmax has it.
        if (std::isinf(sums[row])) sums[row] = std::numeric_limits<A>::quiet_NaN();
        if (right == ignored) continue;
        require_class("cross_entropy", right, row, classes, rows);
        losses[row] = sums[row] - scores[i * step + right];
      }
    });
  });
  return {loss.to(logits.dtype()), logsumexp};
}

LocalTensor cross_entropy_rows_backward(const LocalTensor& grad, const LocalTensor& logits,
                                        const LocalTensor& target, const LocalTensor& logsumexp,
                                        std::int64_t ignored, ClassCut cut) {
  require_classes("cross_entropy_backward", logits, target);
  require_alike("cross_entropy_backward", logsumexp, grad);
  const DType compute = row_dtype(logits.dtype());
  const std::int64_t rows = logits.size(0), classes = logits.size(1);
  const LocalTensor scales = grad.to(compute).contiguous();
  const std::int64_t all_classes = cut.classes < 0 ? classes : cut.classes;
  const LocalTensor out = empty(logits.shape(), {logits.dtype(), logits.device()});
  if (!logits.device().is_cpu()) {
    // Classes are not checked again: the forward has refused invalid ones, and a check would wait
    // for the device.
    cuda::cross_entropy_gradients(out, scales, logits, target.contiguous(), logsumexp.contiguous(),
                                  ignored, cut.first);
    return out;
  }
  const LocalTensor chosen = target.contiguous();
  const LineOperand operands[] = {{&out, Flow::out}, {&logits, Flow::in}};
  with_row_type(compute, [&](auto tag) {
    using A = typename decltype(tag)::Type;
    const auto* const rights = chosen.data_as<const std::int64_t>();
    const A* const row_scales = scales.template data_as<const A>();
    const A* const sums = logsumexp.template data_as<const A>();
    for_each_line(1, compute, operands, [=](std::int64_t row, void* const* lines) {
      A* const result = static_cast<A*>(lines[0]);
      const std::int64_t right = rights[row];
      if (right == ignored) {
        std::fill_n(result, classes, A{0});
        return;
      }
      require_class("cross_entropy", right, row, all_classes, rows);
      const A scale = row_scales[row];
      RowKernels<A>::scaled_exp(result, static_cast<const A*>(lines[1]), sums[row], scale, classes);
      const std::int64_t column = right - cut.first;
      if (column >= 0 && column < classes) result[column] -= scale;
    });
  });
  return out;
}

}  // namespace dtrun::tensors
