// HostMemoryMeter: tensors of any size, made and freed while it stands.
#include "dtrun/tensor/host_memory.h"

#include <gtest/gtest.h>

#include <thread>

#include "dtrun/tensor/ops.h"

namespace dtrun::tensors {
namespace {

TEST(HostMemoryTest, AMeterCountsWhatIsMadeAndFreedAndTheMostOfIt) {
  LocalTensor before = empty({100}, {DType::f64});
  {
    const HostMemoryMeter meter;
    ASSERT_TRUE(meter.counts());
    EXPECT_EQ(meter.now(), 0);
    LocalTensor small = empty({10}, {DType::f32});
    EXPECT_EQ(meter.now(), 40);
    {
      const LocalTensor large = empty({1 << 20}, {DType::f32});
      const LocalTensor view = large.narrow(0, 0, 5);
      EXPECT_EQ(meter.now(), 40 + (4 << 20));
    }
    std::thread([] { empty({3}, {DType::f64}); }).join();
    EXPECT_EQ(meter.now(), 40);
    EXPECT_EQ(meter.peak(), 40 + (4 << 20));
    before = {};
    EXPECT_EQ(meter.now(), 40 - 800);
    // The first one goes on.
    const HostMemoryMeter second;
    EXPECT_FALSE(second.counts());
    EXPECT_EQ(second.now(), 0);
    small = {};
    EXPECT_EQ(meter.now(), -800);
  }
  const HostMemoryMeter anew;
  EXPECT_TRUE(anew.counts());
  EXPECT_EQ(anew.now(), 0);
}

}  // namespace
}  // namespace dtrun::tensors
