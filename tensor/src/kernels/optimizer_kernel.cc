// Optimizer steps: the elements of all parameters as one range, cut into pieces that lie within one
// tensor each.
#include <fmt/core.h>

#include <algorithm>

#include "cuda/optimizer.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops/optimizer.h"
#include "formulas/optimizer.h"
#include "loops/thread_pool.h"
#include "multiversion.h"

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
              why, "tensors made by zeros_like() of the parameters");
}

void check_list(std::string_view op, const NamedList& parameters, const NamedList& list) {
  if (list.tensors.size() != parameters.tensors.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} parameters and {} {}", op, parameters.tensors.size(),
                            list.tensors.size(), list.name),
                "each parameter has its own", "one for each parameter, in their order");
  }
  for (std::size_t i = 0; i < list.tensors.size(); ++i) {
    const LocalTensor &tensor = list.tensors[i], &parameter = parameters.tensors[i];
    if (tensor.device() != parameter.device() ||
        tensor.device().is_cpu() != parameters.tensors[0].device().is_cpu()) {
      refuse(op, list, i,
             fmt::format("it is on {}, and its parameter on {}, the first one on {}",
                         tensor.device().to_string(), parameter.device().to_string(),
                         parameters.tensors[0].device().to_string()));
    }
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

template <typename T>
struct AdamRow {
  T* __restrict parameter;
  const T* __restrict gradient;
  T* __restrict moment;
  T* __restrict second;
};

template <typename T>
DTRUN_MULTIVERSION void adam_row(const AdamRow<T>& row, std::int64_t count,
                                 const formulas::Adam<T>& step) {
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; ++i) {
    step(row.parameter[i], row.gradient[i], row.moment[i], row.second[i]);
  }
}

template <typename T>
DTRUN_MULTIVERSION void sgd_row(T* __restrict parameter, const T* __restrict gradient,
                                std::int64_t count, const formulas::Sgd<T>& step) {
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; ++i) step(parameter[i], gradient[i]);
}

template <typename T>
DTRUN_MULTIVERSION void sgd_momentum_row(T* __restrict parameter, const T* __restrict gradient,
                                         T* __restrict momentum, std::int64_t count,
                                         const formulas::SgdMomentum<T>& step) {
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; ++i) step(parameter[i], gradient[i], momentum[i]);
}

/// visit(tensors of one CUDA device and dtype). @return whether the tensors are on CUDA devices
template <typename Visit>
bool for_each_device(const TensorList& tensors, const Visit& visit) {
  if (tensors.empty() || tensors[0].device().is_cpu()) return false;
  std::vector<cuda::ChosenTensors> groups;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto found = std::ranges::find_if(groups, [&](const cuda::ChosenTensors& group) {
      return group.dtype == tensors[i].dtype() && group.device == tensors[i].device();
    });
    if (found != groups.end()) {
      found->which.push_back(i);
    } else {
      groups.push_back({{i}, tensors[i].dtype(), tensors[i].device()});
    }
  }
  for (const cuda::ChosenTensors& group : groups) visit(group);
  return true;
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
                "the first one is 1", "count the step before the call");
  }
  const bool on_device = for_each_device(parameters, [&](const cuda::ChosenTensors& chosen) {
    cuda::step_adam(chosen, parameters, gradients, moments, second_moments, options);
  });
  if (on_device) return;
  const formulas::Adam<float> single(options);
  const formulas::Adam<double> wide(options);
  for_each_piece(parameters, [&](std::size_t t, std::int64_t begin, std::int64_t count) {
    const auto row = [&]<typename T>(const formulas::Adam<T>& factors) {
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
  const bool has_momentum = options.momentum != 0;
  if (has_momentum) check_list("sgd_step_", first, {"momenta", momenta});
  const bool on_device = for_each_device(parameters, [&](const cuda::ChosenTensors& chosen) {
    cuda::step_sgd(chosen, parameters, gradients, momenta, options);
  });
  if (on_device) return;
  for_each_piece(parameters, [&](std::size_t t, std::int64_t begin, std::int64_t count) {
    const auto row = [&]<typename T>(T) {
      T* const parameter = parameters[t].data_as<T>() + begin;
      const T* const gradient = gradients[t].data_as<const T>() + begin;
      if (!has_momentum) return sgd_row<T>(parameter, gradient, count, formulas::Sgd<T>(options));
      sgd_momentum_row<T>(parameter, gradient, momenta[t].data_as<T>() + begin, count,
                          formulas::SgdMomentum<T>(options));
    };
    parameters[t].dtype() == DType::f32 ? row(float{}) : row(double{});
  });
}

}  // namespace dtrun::tensors
