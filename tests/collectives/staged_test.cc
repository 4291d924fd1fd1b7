// The staged backend over the cpu backend, with a simulated device whose memory is the host's.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "collectives/nccl_job.h"
#include "make_backend.h"
#include "support/rank_threads.h"
#include "through_host/through_host_backend.h"

namespace dtrun::test {
namespace {

using collectives::make_cpu_backend;
using collectives::through_host::PinnedPool;
using collectives::through_host::ThroughHostBackend;

/// Ranks that share one simulated GPU.
void run_staged(int size, NcclSimulation& simulation, const std::function<void(Backend&)>& body) {
  const std::shared_ptr<rendezvous::Store> store = rendezvous::make_hash_store();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      const std::optional<Error> error = error_of([&] {
        const std::shared_ptr<collectives::DeviceApi> device = simulation.device_of(rank);
        ThroughHostBackend backend(make_cpu_backend(group_options(store, rank, size)), device,
                                   std::make_shared<PinnedPool>(device));
        body(backend);
      });
      EXPECT_FALSE(error) << error->what();
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(StagedTest, EveryOperationGoesThroughHostMemory) {
  NcclSimulation simulation;
  run_staged(3, simulation, [](Backend& backend) {
    const int me = backend.rank();
    std::uint64_t sequence = 0;
    for (const std::size_t count : {0UL, 5UL, 3000UL}) {
      Values values(count, me + 1);
      const auto call = [&](OpKind kind, int root = -1) {
        Call made = call_of(kind, ++sequence);
        made.fingerprint.root = root;
        made.fingerprint.counts = count;
        return made;
      };
      test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                       call(OpKind::all_reduce));
      EXPECT_EQ(values, Values(count, 6));
      values.assign(count, me);
      test::broadcast(backend, buffer_of(values), 1, call(OpKind::broadcast, 1));
      EXPECT_EQ(values, Values(count, 1));
      Values input(count, me + 1);
      Values output(count, -1);
      test::reduce(backend, buffer_of(input), buffer_of(output), 2, ReduceOp::sum,
                   call(OpKind::reduce, 2));
      EXPECT_EQ(input, Values(count, me + 1));
      EXPECT_EQ(output, Values(count, me == 2 ? 6 : -1));
      std::vector<Values> all(3, Values(count));
      test::all_gather(backend, buffer_of(input), buffers_of(all), call(OpKind::all_gather));
      EXPECT_EQ(all, (std::vector<Values>{Values(count, 1), Values(count, 2), Values(count, 3)}));
      Call largest = call(OpKind::reduce_scatter);
      largest.fingerprint.reduce_op = ReduceOp::max;
      test::reduce_scatter(backend, buffer_of(output), buffers_of(all), ReduceOp::max,
                           std::move(largest));
      EXPECT_EQ(output, Values(count, me + 1));
      std::vector<Values> received(3, Values(count));
      std::vector<Values> sent(3, Values(count, me));
      test::all_to_all(backend, buffers_of(received), buffers_of(sent), call(OpKind::all_to_all));
      EXPECT_EQ(received,
                (std::vector<Values>{Values(count, 0), Values(count, 1), Values(count, 2)}));
      std::vector<Values> gathered(me == 0 ? 3 : 0, Values(count));
      test::gather(backend, buffer_of(input), buffers_of(gathered), 0, call(OpKind::gather, 0));
      if (me == 0) {
        EXPECT_EQ(gathered.back(), Values(count, 3));
      }
      test::scatter(backend, buffer_of(output), buffers_of(gathered), 0, call(OpKind::scatter, 0));
      EXPECT_EQ(output, Values(count, me + 1));
      test::barrier(backend, call_of(OpKind::barrier, ++sequence));
    }
  });
}

TEST(StagedTest, AnAsynchronousCallIsDoneWhenItsResultIsOnTheDevice) {
  NcclSimulation simulation;
  run_staged(2, simulation, [](Backend& backend) {
    const int me = backend.rank();
    Values sent = {me, 7};
    Values received(2);
    const Work receive =
        test::receive(backend, buffer_of(received), 1 - me, 3, async_call(OpKind::receive, 1));
    test::send(backend, buffer_of(sent), 1 - me, 3, async_call(OpKind::send, 2)).wait();
    receive.wait();
    EXPECT_EQ(received, (Values{1 - me, 7}));
    Values values = {me};
    const Work work = test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                                       async_call(OpKind::all_reduce, 1));
    work.wait(Deadline::after(std::chrono::seconds(60)));
    EXPECT_EQ(values, Values{1});
    const std::unique_ptr<Backend> child =
        backend.split({me}, me, "alone", call_of(OpKind::split, 2));
    EXPECT_EQ(child->name(), "staged");
    test::all_reduce(*child, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 1));
    EXPECT_EQ(values, Values{1});
  });
}

TEST(StagedTest, ACallWaitsForWhatItsStreamHadBefore) {
  NcclSimulation simulation;
  const std::shared_ptr<collectives::DeviceApi> device = simulation.device_of(0);
  ThroughHostBackend backend(make_cpu_backend(group_options(rendezvous::make_hash_store(), 0, 1)),
                             device, std::make_shared<PinnedPool>(device));
  Values values = {1};
  const Values later = {5};
  simulation.freeze(true);
  device->copy(values.data(), later.data(), sizeof(later[0]), device->current_stream(0));
  std::thread thaw([&] {
    while (simulation.count(0, "synchronize") == 0) std::this_thread::yield();
    simulation.freeze(false);
  });
  test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                   call_of(OpKind::all_reduce, 1));
  thaw.join();
  EXPECT_EQ(values, later);
}

TEST(StagedTest, PinnedMemoryIsUsedAnew) {
  NcclSimulation simulation;
  const auto pool = std::make_shared<PinnedPool>(simulation.device_of(0));
  void* const first = pool->allocate(5000).get();
  const std::shared_ptr<void> second = pool->allocate(8000);
  EXPECT_EQ(second.get(), first);
  EXPECT_NE(pool->allocate(8000).get(), first);
}

}  // namespace
}  // namespace dtrun::test
