// Bits do not depend on the number of threads: every operator and its gradient, of matrices that
// are large enough to be cut into several chunks.
#include "dtrun/tensor/threads.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "dtensor/gradient_check.h"
#include "dtensor/operator_samples.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "support/one_in.h"

namespace dtrun::dtensor {
namespace {

/// How many of the samples: one in so many.
constexpr std::size_t kSamplesOneIn = testing_support::one_in(40);

/// The result and the gradients of the inputs, as this many threads compute them.
Tensors results_by(int threads, const OperatorSample& sample, DType dtype) {
  tensors::set_num_threads(threads);
  Tensors leaves, wanted;
  for (const Tensor& input : sample.inputs_in(dtype)) {
    leaves.push_back(input.detach().clone());
    if (tensors::is_floating_point(input.dtype())) wanted.push_back(leaves.back().requires_grad_());
  }
  Tensors all = {sample.run(leaves)};
  if (!all[0].requires_grad()) return all;
  for (const Tensor& gradient : grad({weighed(all[0])}, wanted)) all.push_back(gradient);
  return all;
}

bool has_bits_of(const Tensor& found, const Tensor& right) {
  if (!found.defined() || !right.defined()) return found.defined() == right.defined();
  const tensors::LocalTensor a = found.local().contiguous(), b = right.local().contiguous();
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.numel() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

class ThreadsTest : public ::testing::Test {
 protected:
  void TearDown() override { tensors::set_num_threads(before_); }
  const int before_ = tensors::num_threads();
};

void expect_the_same_bits(DType dtype) {
  const std::vector<OperatorSample> samples = operator_samples(300, 400);
  std::size_t compared = 0;
  for (std::size_t i = 0; i < samples.size(); i += kSamplesOneIn) {
    const OperatorSample& sample = samples[i];
    // What is of integers stays so, and is compared once.
    const DType own = sample.stand_in == DType::f64 ? dtype : sample.stand_in;
    if (own != dtype && dtype != DType::f64) continue;
    const Tensors right = results_by(1, sample, own);
    for (const int threads : {2, 4}) {
      const Tensors found = results_by(threads, sample, own);
      ASSERT_EQ(found.size(), right.size()) << sample.name;
      for (std::size_t k = 0; k < right.size(); ++k) {
        EXPECT_TRUE(has_bits_of(found[k], right[k]))
            << sample.name << ", " << (k == 0 ? "result" : "gradient " + std::to_string(k - 1))
            << ", by " << threads << " threads";
      }
    }
    ++compared;
  }
  std::printf("%zu samples\n", compared);
  EXPECT_GT(compared, 400U / kSamplesOneIn);
}

TEST_F(ThreadsTest, EveryOperatorHasTheSameBitsInF64) {
  expect_the_same_bits(DType::f64);
}
TEST_F(ThreadsTest, EveryOperatorHasTheSameBitsInF32) {
  expect_the_same_bits(DType::f32);
}
TEST_F(ThreadsTest, EveryOperatorHasTheSameBitsInBf16) {
  expect_the_same_bits(DType::bf16);
}

}  // namespace
}  // namespace dtrun::dtensor
