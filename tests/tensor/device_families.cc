#include "tensor/device_families.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <utility>

#include "dtrun/tensor/ops.h"
#include "tensor/device_comparison.h"

namespace dtrun::tensors {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Reduction = std::function<LocalTensor(const LocalTensor&, const std::vector<int>&)>;

/// Those that have the bits of the host's, for every dtype that the host's takes.
const std::vector<std::pair<std::string, Reduction>>& exact_reductions() {
  using A = const LocalTensor&;
  using D = const std::vector<int>&;
  static const std::vector<std::pair<std::string, Reduction>> kAll = {
      {"sum", [](A a, D d) { return sum(a, d, true); }},
      {"mean", [](A a, D d) { return mean(a, d); }},
      {"amax", [](A a, D d) { return amax(a, d); }},
      {"amin", [](A a, D d) { return amin(a, d, true); }},
      {"any", [](A a, D d) { return any(a, d); }},
      {"all", [](A a, D d) { return all(a, d); }},
      {"var", [](A a, D d) { return var(a, d); }},
      {"std", [](A a, D d) { return stddev(a, d, 0); }},
      {"norm_0", [](A a, D d) { return norm(a, 0, d); }},
      {"norm_1", [](A a, D d) { return norm(a, 1, d); }},
      {"norm_2", [](A a, D d) { return norm(a, 2, d); }},
      {"norm_inf", [](A a, D d) { return norm(a, kInfinity, d); }},
      {"norm_-inf", [](A a, D d) { return norm(a, -kInfinity, d); }},
      {"prod", [](A a, D d) { return d.size() == 1 ? prod(a, d[0]) : prod(a); }},
      {"max", [](A a, D d) { return d.size() == 1 ? max(a, d[0]).values : max(a); }},
      {"min", [](A a, D d) { return d.size() == 1 ? min(a, d[0]).values : min(a); }},
      {"max at", [](A a, D d) { return d.size() == 1 ? max(a, d[0]).indices : argmax(a); }},
      {"min at", [](A a, D d) { return d.size() == 1 ? min(a, d[0]).indices : argmin(a); }},
  };
  return kAll;
}
const std::vector<std::pair<std::string, Reduction>>& close_reductions() {
  using A = const LocalTensor&;
  using D = const std::vector<int>&;
  static const std::vector<std::pair<std::string, Reduction>> kAll = {
      {"norm_3", [](A a, D d) { return norm(a, 3, d); }},
      {"logsumexp", [](A a, D d) { return logsumexp(a, d); }},
  };
  return kAll;
}

/// An operation that the host refuses is refused with the same words.
template <typename Compare>
void compare_with_host(const std::string& what, Device device, const LocalTensor& host,
                       const std::function<LocalTensor(const LocalTensor&)>& operation,
                       const Compare& compare) {
  LocalTensor expected;
  std::string refusal;
  try {
    expected = operation(host);
  } catch (const std::exception& error) {
    refusal = error.what();
  }
  try {
    const LocalTensor got = operation(like(host, device));
    if (refusal.empty()) return compare(got, expected, device, what);
    ADD_FAILURE() << what << " went on; the host says " << refusal;
  } catch (const std::exception& error) {
    EXPECT_EQ(error.what(), refusal) << what;
  }
}

void compare_reductions(const LocalTensor& host, const std::vector<int>& dims, Device device,
                        const std::string& where) {
  const std::string what = where + " " + std::string(dtype_name(host.dtype())) + " ";
  for (const auto& [name, reduction] : exact_reductions()) {
    compare_with_host(
        what + name, device, host, [&](const LocalTensor& a) { return reduction(a, dims); },
        &expect_same);
  }
  for (const auto& [name, reduction] : close_reductions()) {
    compare_with_host(
        what + name, device, host, [&](const LocalTensor& a) { return reduction(a, dims); },
        &expect_close);
  }
}

}  // namespace

void expect_reductions_as_on_host(Device device) {
  for (const DType dtype : kDeviceDTypes) {
    for (const LocalTensor& host : layouts_of(dtype, 3)) {
      compare_reductions(host, {0}, device, "columns");
      compare_reductions(host, {1}, device, "rows");
      compare_reductions(host, {}, device, "all");
    }
    const LocalTensor cube = numbers({3, 5, 7}, dtype, 9);
    compare_reductions(cube, {0, 2}, device, "outer and inner");
    compare_reductions(cube.transpose(0, 2), {1}, device, "middle of a transposed");
    compare_reductions(numbers({}, dtype, 4), {}, device, "a number");
    compare_reductions(numbers({0, 3}, dtype, 4), {0}, device, "nothing");
    compare_reductions(numbers({0, 3}, dtype, 4), {1}, device, "no rows");
    compare_reductions(numbers({2, 7000}, dtype, 5), {1}, device, "long rows");
    compare_reductions(numbers({2, 7000}, dtype, 5), {0}, device, "many columns");
    compare_reductions(numbers({2100, 19}, dtype, 6), {0}, device, "long columns");
    compare_reductions(numbers({70001}, dtype, 6), {0}, device, "one long row");
  }
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const LocalTensor odd = tensor_from(std::vector<double>{0.0, -0.0, kNan, -0.0, 0.0, 1.0, kInfinity, -kInfinity,
                                         2.0, -kInfinity, -kInfinity, -kInfinity, kNan, kNan, 1.0},
                                        {5, 3}, dtype);
    compare_reductions(odd, {0}, device, "odd columns");
    compare_reductions(odd, {1}, device, "odd rows");
    compare_reductions(odd, {}, device, "odd");
    LocalTensor late = zeros({3000}, {dtype});
    late.slice(0, 2500, 2501).fill_(kNan);
    compare_reductions(late, {0}, device, "a late nan");
  }
}

}  // namespace dtrun::tensors
