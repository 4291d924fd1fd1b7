// Operators whose thread takes signals meanwhile: a library's kernel may keep something where a
// signal's frame is put.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>

#include <chrono>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::tensors {
namespace {

volatile sig_atomic_t signals_taken = 0;

/// Every 50 us, while it lives.
class Alarms {
 public:
  Alarms() {
    signals_taken = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { signals_taken = signals_taken + 1; };
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGALRM, &action, &before_);
    const itimerval often{{0, 50}, {0, 50}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Alarms() {
    const itimerval never{};
    ::setitimer(ITIMER_REAL, &never, nullptr);
    ::sigaction(SIGALRM, &before_, nullptr);
  }

 private:
  struct sigaction before_ {};
};

// oneDNN's f32 kernels for AVX-512 freed what a signal had written.
TEST(SignalsTest, ProductsAreRightWhereSignalsComeMeanwhile) {
  constexpr int kSignals = 400;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const bool is_turned : {false, true}) {
      const LocalTensor a = ones({96, 128}, {dtype});
      const LocalTensor b =
          is_turned ? ones({64, 128}, {dtype}).transpose(0, 1) : ones({128, 64}, {dtype});
      const std::vector<double> expected(96 * 64, 128);
      const Alarms alarms;
      const auto end = base::Deadline::after(std::chrono::seconds(20));
      for (LocalTensor product; signals_taken < kSignals && !end.expired();) {
        for (int i = 0; i < 20; ++i) product = matmul(a, b);
        ASSERT_EQ(product.to_vector(), expected) << dtype_name(dtype);
      }
      EXPECT_GE(signals_taken, kSignals);
    }
  }
}

}  // namespace
}  // namespace dtrun::tensors
