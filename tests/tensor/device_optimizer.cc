#include "tensor/device_optimizer.h"

#include <gtest/gtest.h>

#include <functional>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/optimizer.h"
#include "tensor/device_comparison.h"

namespace dtrun::tensors {
namespace {

/// Parameters, gradients and two memories.
using Lists = std::vector<TensorList>;

Lists lists_on(Device device, std::int64_t first_element) {
  Lists lists(4);
  for (int number = 0; number < 150; ++number) {
    const std::int64_t size = number % 7 == 0 ? 0 : number % 11 == 0 ? 1003 : number % 5 + 1;
    const DType dtype = number % 4 == 3 ? DType::f64 : DType::f32;
    for (std::size_t list = 0; list < lists.size(); ++list) {
      const RandomKey key{static_cast<std::uint64_t>(number), list};
      const LocalTensor values = randn({size + first_element}, key, {.dtype = dtype});
      // Second moments are not negative.
      const LocalTensor made = list == 3 ? values * values : values;
      lists[list].push_back(made.to(device).slice(0, first_element, size + first_element));
    }
  }
  return lists;
}

}  // namespace

void expect_steps_as_on_host(Device device) {
  const auto adam = [](AdamStep options) {
    return [options](const Lists& l) { adam_step_(l[0], l[1], l[2], l[3], options); };
  };
  const auto sgd = [](SgdStep options) {
    return [options](const Lists& l) {
      sgd_step_(l[0], l[1], options.momentum == 0 ? TensorList{} : l[2], options);
    };
  };
  const std::vector<std::function<void(const Lists&)>> steps = {
      adam({.step = 3}),
      adam({.lr = 0.1, .step = 1, .decay = AdamStep::Decay::of_gradient}),
      sgd({.weight_decay = 0.1}),
      sgd({.momentum = 0.9, .dampening = 0.1, .is_first = true}),
      sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}),
      sgd({.momentum = 0.9, .nesterov = true})};
  for (const std::int64_t first_element : {0, 1}) {
    const Lists host = lists_on(kCpu, first_element), remote = lists_on(device, first_element);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      steps[step](host);
      steps[step](remote);
      for (std::size_t list = 0; list < host.size(); ++list) {
        for (std::size_t i = 0; i < host[list].size(); ++i) {
          expect_same(remote[list][i], host[list][i], device,
                      "step " + std::to_string(step) + ", list " + std::to_string(list));
        }
      }
    }
  }
  Lists mixed = lists_on(device, 0);
  mixed[1][4] = mixed[1][4].to(kCpu);
  try {
    adam_step_(mixed[0], mixed[1], mixed[2], mixed[3], {});
    ADD_FAILURE() << "no error";
  } catch (const base::Error& error) {
    EXPECT_NE(error.summary().find("number 4 of the gradients"), std::string::npos);
    EXPECT_NE(error.why().find("it is on cpu"), std::string::npos) << error.why();
  }
}

}  // namespace dtrun::tensors
