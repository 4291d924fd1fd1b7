#include "cuda/optimizer.h"

#include <algorithm>
#include <array>

#include "cuda/for_each.h"
#include "formulas/optimizer.h"

namespace dtrun::tensors::cuda {
namespace {

constexpr int kMostTensors = 64;  ///< in one kernel: a launch takes 4 KiB
constexpr std::int64_t kNeighbours = 4;

template <typename T>
struct alignas(16) Neighbours {
  T items[kNeighbours];
};

/// Parameters, gradients, and what the optimizer remembers.
template <typename T, int kMemories>
struct TensorRows {
  T* parameter;
  const T* gradient;
  T* memories[kMemories == 0 ? 1 : kMemories];
};

/// Index: group of neighbours of all tensors, one after the other.
template <typename T, int kMemories, typename Formula>
struct StepBody {
  Formula formula;
  int tensors;
  bool is_aligned;
  std::int64_t group_ends[kMostTensors];
  std::int64_t counts[kMostTensors];
  TensorRows<T, kMemories> rows[kMostTensors];

  DTRUN_BOTH int tensor_of(std::int64_t group) const {
    int low = 0, high = tensors - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (group < group_ends[middle]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  DTRUN_BOTH void step(T& parameter, T gradient, T* memories) const {
    if constexpr (kMemories == 0) formula(parameter, gradient);
    if constexpr (kMemories == 1) formula(parameter, gradient, memories[0]);
    if constexpr (kMemories == 2) formula(parameter, gradient, memories[0], memories[1]);
  }

  DTRUN_BOTH void step_neighbours(const TensorRows<T, kMemories>& row, std::int64_t first) const {
    using Four = Neighbours<T>;
    Four parameter = *reinterpret_cast<const Four*>(row.parameter + first);
    const Four gradient = *reinterpret_cast<const Four*>(row.gradient + first);
    Four memories[kMemories == 0 ? 1 : kMemories];
    for (int m = 0; m < kMemories; ++m) {
      memories[m] = *reinterpret_cast<const Four*>(row.memories[m] + first);
    }
#pragma unroll
    for (int k = 0; k < kNeighbours; ++k) {
      T own[kMemories == 0 ? 1 : kMemories];
      for (int m = 0; m < kMemories; ++m) own[m] = memories[m].items[k];
      step(parameter.items[k], gradient.items[k], own);
      for (int m = 0; m < kMemories; ++m) memories[m].items[k] = own[m];
    }
    *reinterpret_cast<Four*>(row.parameter + first) = parameter;
    for (int m = 0; m < kMemories; ++m) {
      *reinterpret_cast<Four*>(row.memories[m] + first) = memories[m];
    }
  }

  DTRUN_BOTH void operator()(std::int64_t group) const {
    const int t = tensor_of(group);
    const TensorRows<T, kMemories>& row = rows[t];
    const std::int64_t first = (group - (t == 0 ? 0 : group_ends[t - 1])) * kNeighbours;
    if (is_aligned && first + kNeighbours <= counts[t]) return step_neighbours(row, first);
    for (std::int64_t i = first; i < counts[t] && i < first + kNeighbours; ++i) {
      T own[kMemories == 0 ? 1 : kMemories];
      for (int m = 0; m < kMemories; ++m) own[m] = row.memories[m][i];
      step(row.parameter[i], row.gradient[i], own);
      for (int m = 0; m < kMemories; ++m) row.memories[m][i] = own[m];
    }
  }
};

template <typename T, int kMemories, typename Formula>
void run_step(const Formula& formula, const ChosenTensors& chosen, const TensorList& parameters,
              const TensorList& gradients,
              const std::array<const TensorList*, kMemories>& memories) {
  static_assert(sizeof(StepBody<T, kMemories, Formula>) <= 4096);
  const Stream stream = current_stream(chosen.device.index);
  for (std::size_t begin = 0; begin < chosen.which.size(); begin += kMostTensors) {
    const std::size_t end = std::min(chosen.which.size(), begin + kMostTensors);
    StepBody<T, kMemories, Formula> body{formula, static_cast<int>(end - begin), true, {}, {}, {}};
    std::int64_t groups = 0;
    for (std::size_t k = begin; k < end; ++k) {
      const std::size_t which = chosen.which[k], place = k - begin;
      TensorRows<T, kMemories>& row = body.rows[place];
      row.parameter = parameters[which].data_as<T>();
      row.gradient = gradients[which].data_as<const T>();
      body.is_aligned = body.is_aligned && is_aligned(row.parameter) && is_aligned(row.gradient);
      for (int m = 0; m < kMemories; ++m) {
        row.memories[m] = (*memories[static_cast<std::size_t>(m)])[which].template data_as<T>();
        body.is_aligned = body.is_aligned && is_aligned(row.memories[m]);
      }
      body.counts[place] = parameters[which].numel();
      groups += (body.counts[place] + kNeighbours - 1) / kNeighbours;
      body.group_ends[place] = groups;
    }
    for_each(groups, body, stream);
  }
}

}  // namespace

void step_adam(const ChosenTensors& chosen, const TensorList& parameters,
               const TensorList& gradients, const TensorList& moments,
               const TensorList& second_moments, const AdamStep& options) {
  const auto run = [&]<typename T>(T) {
    run_step<T, 2>(formulas::Adam<T>(options), chosen, parameters, gradients,
                   {&moments, &second_moments});
  };
  chosen.dtype == DType::f32 ? run(float{}) : run(double{});
}

void step_sgd(const ChosenTensors& chosen, const TensorList& parameters,
              const TensorList& gradients, const TensorList& momenta, const SgdStep& options) {
  const auto run = [&]<typename T>(T) {
    if (options.momentum == 0) {
      run_step<T, 0>(formulas::Sgd<T>(options), chosen, parameters, gradients, {});
    } else {
      run_step<T, 1>(formulas::SgdMomentum<T>(options), chosen, parameters, gradients, {&momenta});
    }
  };
  chosen.dtype == DType::f32 ? run(float{}) : run(double{});
}

}  // namespace dtrun::tensors::cuda
