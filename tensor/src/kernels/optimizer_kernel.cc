// Optimizer steps: the elements of all parameters as one range, cut into pieces that lie within one
// tensor each.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops/optimizer.h"
#include "loops/thread_pool.h"
#include "multiversion.h"
#include "ops/map_call.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

constexpr std::int64_t kElementsPerTask = 16384;

struct NamedList {
  const char* name;
  const TensorList& tensors;
};

[[noreturn]] void refuse(std::string_view op, const NamedList& list, std::size_t which,
                         const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}: number {} of the {} is {} {}", op, which, list.name,
                          dtype_name(list.tensors[which].dtype()),
                          shape_to_string(list.tensors[which].shape())),
              why);
}

void check_list(std::string_view op, const NamedList& parameters, const NamedList& list) {
  if (list.tensors.size() != parameters.tensors.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} parameters and {} {}", op, parameters.tensors.size(),
                            list.tensors.size(), list.name));
  }
  for (std::size_t i = 0; i < list.tensors.size(); ++i) {
    const LocalTensor &tensor = list.tensors[i], &parameter = parameters.tensors[i];
    require_host(op, tensor);
    if (tensor.dtype() != DType::f32 && tensor.dtype() != DType::f64) {
      refuse(op, list, i, "a step takes float32 and float64: keep a copy in float32");
    }
    if (tensor.shape() != parameter.shape() || tensor.dtype() != parameter.dtype()) {
      refuse(op, list, i,
             fmt::format("its parameter is {} {}", dtype_name(parameter.dtype()),
                         shape_to_string(parameter.shape())));
    }
    if (!tensor.is_contiguous()) refuse(op, list, i, "its elements do not lie one after the other");
  }
}

/// visit(tensor, first, count) for pieces of all tensors.
template <typename Visit>
void for_each_piece(const TensorList& tensors, const Visit& visit) {
  std::vector<std::int64_t> ends;
  std::int64_t total = 0;
  for (const LocalTensor& tensor : tensors) ends.push_back(total += tensor.numel());
  parallel_for(total, kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    auto which =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    while (begin < end) {
      const std::int64_t start = which == 0 ? 0 : ends[which - 1];
      const std::int64_t stop = std::min(end, ends[which]);
      if (stop > begin) visit(which, begin - start, stop - begin);
      begin = stop;
      ++which;
    }
  });
}

/// What does not change from element to element.
template <typename T>
struct AdamFactors {
  T kept, gradient_decay, weight1, beta2, weight2, root_correction, eps, step_size;

  explicit AdamFactors(const AdamStep& o)
      : kept(static_cast<T>(o.decay == AdamStep::Decay::decoupled ? 1 - o.lr * o.weight_decay : 1)),
        gradient_decay(
            static_cast<T>(o.decay == AdamStep::Decay::of_gradient ? o.weight_decay : 0)),
        weight1(static_cast<T>(1 - o.beta1)),
        beta2(static_cast<T>(o.beta2)),
        weight2(static_cast<T>(1 - o.beta2)),
        root_correction(
            static_cast<T>(std::sqrt(1 - std::pow(o.beta2, static_cast<double>(o.step))))),
        eps(static_cast<T>(o.eps)),
        step_size(static_cast<T>(-o.lr / (1 - std::pow(o.beta1, static_cast<double>(o.step))))) {}
};

template <typename T>
struct AdamRow {
  T* __restrict parameter;
  const T* __restrict gradient;
  T* __restrict moment;
  T* __restrict second;
};

template <typename T>
DTRUN_MULTIVERSION void adam_row(const AdamRow<T>& row, std::int64_t count,
                                 const AdamFactors<T>& f) {
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; ++i) {
    const T p = row.parameter[i] * f.kept;
    const T g = row.gradient[i] + p * f.gradient_decay;
    const T m = row.moment[i] + f.weight1 * (g - row.moment[i]);
    const T v = row.second[i] * f.beta2 + f.weight2 * (g * g);
    const T divisor = std::sqrt(v) / f.root_correction + f.eps;
    row.moment[i] = m;
    row.second[i] = v;
    row.parameter[i] = p + f.step_size * (m / divisor);
  }
}

enum class Momentum { none, plain, nesterov };

template <typename T>
struct SgdFactors {
  T lr, momentum, kept, weight, decay;

  explicit SgdFactors(const SgdStep& o)
      : lr(static_cast<T>(o.lr)),
        momentum(static_cast<T>(o.momentum)),
        kept(o.is_first ? T{0} : momentum),
        weight(o.is_first ? T{1} : static_cast<T>(1 - o.dampening)),
        decay(static_cast<T>(o.weight_decay)) {}
};

template <typename T>
DTRUN_MULTIVERSION void sgd_row(T* __restrict parameter, const T* __restrict gradient,
                                T* __restrict momentum, std::int64_t count, Momentum kind,
                                const SgdFactors<T>& f) {
  if (kind == Momentum::none) {
    DTRUN_INDEPENDENT_ROUNDS
    for (std::int64_t i = 0; i < count; ++i) {
      parameter[i] -= f.lr * (gradient[i] + f.decay * parameter[i]);
    }
    return;
  }
  const T looked_ahead = kind == Momentum::nesterov ? T{1} : T{0};
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] + f.decay * parameter[i];
    const T m = momentum[i] * f.kept + f.weight * g;
    momentum[i] = m;
    parameter[i] -= f.lr * (looked_ahead != T{0} ? g + f.momentum * m : m);
  }
}

}  // namespace

void adam_step_(const TensorList& parameters, const TensorList& gradients,
                const TensorList& moments, const TensorList& second_moments,
                const AdamStep& options) {
  const NamedList first{"parameters", parameters};
  for (const NamedList& list :
       {first, NamedList{"gradients", gradients}, NamedList{"moments", moments},
        NamedList{"second moments", second_moments}}) {
    check_list("adam_step_", first, list);
  }
  if (options.step < 1) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("adam_step_: step {}", options.step),
                "the first one is 1");
  }
  const AdamFactors<float> single(options);
  const AdamFactors<double> wide(options);
  for_each_piece(parameters, [&](std::size_t t, std::int64_t begin, std::int64_t count) {
    const auto row = [&]<typename T>(const AdamFactors<T>& factors) {
      adam_row<T>({parameters[t].data_as<T>() + begin, gradients[t].data_as<const T>() + begin,
                   moments[t].data_as<T>() + begin, second_moments[t].data_as<T>() + begin},
                  count, factors);
    };
    parameters[t].dtype() == DType::f32 ? row(single) : row(wide);
  });
}

void sgd_step_(const TensorList& parameters, const TensorList& gradients, const TensorList& momenta,
               const SgdStep& options) {
  const NamedList first{"parameters", parameters};
  check_list("sgd_step_", first, first);
  check_list("sgd_step_", first, {"gradients", gradients});
  const Momentum kind = options.momentum == 0 ? Momentum::none
                        : options.nesterov    ? Momentum::nesterov
                                              : Momentum::plain;
  if (kind != Momentum::none) check_list("sgd_step_", first, {"momenta", momenta});
  for_each_piece(parameters, [&](std::size_t t, std::int64_t begin, std::int64_t count) {
    const auto row = [&]<typename T>(T) {
      T* const momentum = kind == Momentum::none ? nullptr : momenta[t].data_as<T>() + begin;
      sgd_row<T>(parameters[t].data_as<T>() + begin, gradients[t].data_as<const T>() + begin,
                 momentum, count, kind, SgdFactors<T>(options));
    };
    parameters[t].dtype() == DType::f32 ? row(float{}) : row(double{});
  });
}

}  // namespace dtrun::tensors
