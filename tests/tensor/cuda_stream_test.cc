// Devices, streams, events and asynchronous copies, over a simulated device.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "cuda/context.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/cuda.h"
#include "support/thrown_error.h"
#include "tensor/simulated_cuda.h"

namespace dtrun::tensors::cuda {
namespace {

using base::Error;
using base::ErrorCode;

class CudaStreamTest : public ::testing::Test {
 protected:
  SimulatedCuda simulation_;
  CudaContext context_{SimulatedCuda::api(), SimulatedCuda::blas()};
  ContextGuard guard_{context_};
};

Error thrown(const std::function<void()>& action) {
  const std::optional<Error> error = testing_support::error_of(action);
  if (!error) ADD_FAILURE() << "no error";
  return error.value_or(Error(ErrorCode::kUsage, "no error"));
}

/// Device memory of the simulation, with a value that the host reads as it is now.
LocalTensor on_device(std::int64_t size) {
  return empty({size}, {DType::i32, {DeviceType::cuda, 0}});
}

TEST_F(CudaStreamTest, GuardsGiveBackWhatWasCurrent) {
  EXPECT_TRUE(is_available());
  EXPECT_EQ(device_count(), 2);
  const Stream stream = Stream::from_pool(1);
  {
    const StreamGuard guard(stream);
    EXPECT_EQ(current_device(), 1);
    EXPECT_EQ(current_stream(1), stream);
    EXPECT_EQ(current_stream(0), Stream::of_default(0));
    std::thread([] { EXPECT_EQ(current_stream(1), Stream::of_default(1)); }).join();
  }
  EXPECT_EQ(current_device(), 0);
  EXPECT_EQ(current_stream(1), Stream::of_default(1));
  set_device(1);
  EXPECT_EQ(current_device(), 1);
}

TEST_F(CudaStreamTest, ADeviceThatIsNotUsedGetsNoContext) {
  const auto has_context = [](int device) {
    bool has = true;
    SimulatedCuda::api().has_context(device, &has);
    return has;
  };
  const LocalTensor first = empty({1}, {DType::i32, {DeviceType::cuda, 1}});
  const LocalTensor second = empty({1}, {DType::i32, {DeviceType::cuda, 1}});
  EXPECT_EQ(current_device(), 0);
  EXPECT_FALSE(has_context(0));
  // What is made on the current device is made on that one all the same.
  const Event event;
  Stream::of_default(0).record(event);
  event.synchronize();
  EXPECT_TRUE(has_context(0));
  { const DeviceGuard guard(1); }
  int current = -1;
  SimulatedCuda::api().get_device(&current);
  EXPECT_EQ(current, 0);
}

TEST_F(CudaStreamTest, ADeviceThatIsNotThereIsUnavailable) {
  const Error error = thrown([] { set_device(7); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_EQ(error.summary(), "cannot use cuda:7");
}

TEST_F(CudaStreamTest, ThePoolHandsOutThirtyTwoStreamsInTurn) {
  const Stream first = Stream::from_pool(0);
  for (int i = 1; i < 32; ++i) EXPECT_NE(Stream::from_pool(0), first);
  EXPECT_EQ(Stream::from_pool(0), first);
}

TEST_F(CudaStreamTest, WorkWaitsForTheEventOfAnotherStream) {
  const Stream first = Stream::from_pool(0);
  const Stream second = Stream::from_pool(0);
  static std::string order;
  order.clear();
  const auto append = [](const Stream& stream, void (*function)(void*)) {
    SimulatedCuda::api().launch_host_function(stream.handle(), function, nullptr);
  };
  append(first, [](void*) { order += "a"; });
  second.wait(first);
  append(second, [](void*) { order += "b"; });
  EXPECT_FALSE(second.is_idle());
  const Event event;
  second.record(event);
  EXPECT_FALSE(event.is_done());
  std::mt19937 random(1);
  simulation_.run_some(random, 0);
  EXPECT_EQ(order, "");
  event.synchronize();
  EXPECT_EQ(order, "ab");
  EXPECT_TRUE(event.is_done());
  EXPECT_TRUE(second.is_idle());
  second.wait(second);
  EXPECT_TRUE(Event().is_done()) << "an event that was never recorded";
  EXPECT_EQ(Event(EventTiming::on).milliseconds_since(Event(EventTiming::on)), 1);
}

TEST_F(CudaStreamTest, CopiesThatAreAsynchronousReturnBeforeTheyAreDone) {
  const LocalTensor device = on_device(4);
  const LocalTensor pinned = empty_pinned({4}, DType::i32);
  for (int i = 0; i < 4; ++i) pinned.data_as<std::int32_t>()[i] = i + 1;
  simulation_.clear_calls();
  copy_async(device, pinned);
  const LocalTensor back = empty_pinned({4}, DType::i32);
  back.fill_(0);
  copy_async(back, device);
  EXPECT_EQ(simulation_.calls(),
            (std::vector<std::string>{"memcpy_async", "host_malloc", "memcpy_async"}));
  EXPECT_EQ(back.data_as<std::int32_t>()[3], 0);
  synchronize();
  EXPECT_EQ(back.to_vector(), (std::vector<double>{1, 2, 3, 4}));
}

TEST_F(CudaStreamTest, CopiesThatCannotBeAsynchronousAreRefused) {
  const LocalTensor device = on_device(4);
  for (const auto& [target, source] : std::vector<std::pair<LocalTensor, LocalTensor>>{
           {device, empty({4})},
           {device, empty({3}, {DType::i32})},
           {device.slice(0, 0, 4, 2), empty({2}, {DType::i32})},
           {empty({4}), empty({4})}}) {
    const Error error = thrown([&, t = target, s = source] { copy_async(t, s); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  }
  const Error error = thrown([] { record_stream(ones({1}), Stream::of_default(0)); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
}

TEST_F(CudaStreamTest, EveryCallThatFailsSaysWhatWasTried) {
  const Stream stream = Stream::from_pool(0);
  const Event event;
  const std::vector<std::tuple<const char*, std::string, std::function<void()>>> cases = {
      {"stream_create", "cannot make a stream", [] { Stream::from_pool(0); }},
      {"stream_synchronize", "cannot wait for a stream", [&] { stream.synchronize(); }},
      {"stream_wait_event", "cannot let a stream wait for an event", [&] { stream.wait(event); }},
      {"event_create", "cannot make an event", [] { Event(); }},
      {"event_record", "cannot record an event", [&] { stream.record(event); }},
      {"event_synchronize", "cannot wait for an event", [&] { event.synchronize(); }},
      {"device_synchronize", "cannot wait for the device", [] { synchronize(1); }},
      {"host_malloc", "cannot allocate pinned memory", [] { empty_pinned({2}, DType::f32); }},
      {"memcpy_async", "cannot copy", [] { on_device(1).copy_(ones({1}, {DType::i32})); }}};
  for (const auto& [call, summary, action] : cases) {
    simulation_.fail_next(call, Status::invalid_value);
    const Error error = thrown(action);
    EXPECT_EQ(error.summary(), summary);
    EXPECT_EQ(error.code(), ErrorCode::kSystem);
  }
  simulation_.fail_next("stream_create", Status{209});  // cudaErrorNoKernelImageForDevice
  const Error foreign = thrown([] { Stream::from_pool(0); });
  EXPECT_EQ(foreign.code(), ErrorCode::kUnavailable);
  EXPECT_NE(foreign.remedy().find("CMAKE_CUDA_ARCHITECTURES"), std::string::npos);
  simulation_.break_context();
  EXPECT_EQ(thrown([&] { event.is_done(); }).summary(), "cannot ask for an event");
  EXPECT_EQ(thrown([] { current_device(); }).summary(), "cannot tell the current CUDA device");
}

TEST_F(CudaStreamTest, PinnedMemoryIsGivenBack) {
  { const LocalTensor pinned = empty_pinned({0}, DType::f32); }
  EXPECT_EQ(simulation_.calls().back(), "host_free");
}

}  // namespace
}  // namespace dtrun::tensors::cuda
