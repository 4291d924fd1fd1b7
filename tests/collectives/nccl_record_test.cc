// What the ranks' records say of groups over nccl and staged: over the simulation of NCCL. The
// flight recorder, the failure table and traces are made of them.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "collectives/nccl_job.h"
#include "dtrun/rendezvous/flight_explanation.h"
#include "dtrun/rendezvous/flight_record.h"
#include "make_backend.h"
#include "support/rank_threads.h"
#include "through_host/through_host_backend.h"

namespace dtrun::test {
namespace {

using collectives::GroupOptions;
using rendezvous::FlightFinding;
using rendezvous::FlightOperation;
using rendezvous::FlightRecord;
using rendezvous::FlightState;
using rendezvous::JobPage;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// As a launcher makes it.
std::shared_ptr<JobPage> page_of(int ranks) {
  auto page = std::make_shared<JobPage>(JobPage::create(ranks));
  for (int i = 0; i < ranks; ++i) page->slot(i).global_rank = i;
  return page;
}

std::vector<std::string> names(const FlightRecord& record, std::size_t rank) {
  std::vector<std::string> all;
  for (const FlightOperation& operation : record.ranks.at(rank).operations)
    all.push_back(operation.name + " of " + operation.group);
  return all;
}

TEST(NcclRecordTest, CollectivesMessagesAndSplitsAreRecorded) {
  NcclJob job(2);
  job.job_page = page_of(2);
  job.run_well([&](Backend& backend) {
    Values values = {1, 2};
    Call call = call_of(OpKind::all_reduce, 1);
    call.fingerprint.counts = 2;
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum, std::move(call));
    Call message = call_of(backend.rank() == 0 ? OpKind::send : OpKind::receive, 1);
    message.fingerprint.root = 1 - backend.rank();
    if (backend.rank() == 0)
      test::send(backend, buffer_of(values), 1, 0, std::move(message));
    else
      test::receive(backend, buffer_of(values), 0, 0, std::move(message));
    const std::unique_ptr<Backend> pair =
        backend.split({0, 1}, 0, "pair", call_of(OpKind::split, 2));
    test::barrier(*pair, call_of(OpKind::barrier, 1));
    pair->shutdown();
    backend.shutdown();
  });
  const FlightRecord record = read_flight(*job.job_page);
  EXPECT_THAT(names(record, 0), ElementsAre("all_reduce of world", "send of world",
                                            "split of world", "barrier of pair"));
  EXPECT_THAT(names(record, 1), ElementsAre("all_reduce of world", "recv of world",
                                            "split of world", "barrier of pair"));
  for (const rendezvous::RankFlight& rank : record.ranks) {
    EXPECT_EQ(rank.state, "running");
    for (const FlightOperation& operation : rank.operations)
      EXPECT_EQ(operation.state, FlightState::done) << operation.name;
    const FlightOperation& first = rank.operations.front();
    EXPECT_EQ(first.bytes, 16U);
    EXPECT_EQ(first.dtype, "i64");
    EXPECT_EQ(first.reduce_op, "sum");
    EXPECT_THAT(first.members.all(2), ElementsAre(0, 1));
  }
}

TEST(NcclRecordTest, APremulSumHasANameThatFitsTheRecord) {
  const std::shared_ptr<JobPage> page = page_of(1);
  collectives::RankRecord record(page, 0);
  collectives::Fingerprint fingerprint;
  fingerprint.kind = OpKind::all_reduce;
  fingerprint.reduce_op = ReduceOp::premul_sum;
  record.end(record.begin(fingerprint, {"world", 0, {0}}, 8),
             collectives::RankRecord::Outcome::done);
  EXPECT_EQ(read_flight(*page).ranks[0].operations.at(0).reduce_op, "premul");
}

TEST(NcclRecordTest, TheRecordSaysWhoHasNotCome) {
  NcclJob job(2);
  job.host_wait = HostWait::yes;
  job.job_page = page_of(2);
  const auto thrown = job.run([&](Backend& backend) {
    Values values = {1};
    test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                     call_of(OpKind::all_reduce, 1));
    if (backend.rank() == 1) return;
    test::barrier(backend,
                  call_of(OpKind::barrier, 2, Deadline::after(std::chrono::milliseconds(200))));
  });
  ASSERT_TRUE(thrown[0]);
  const FlightRecord record = read_flight(*job.job_page);
  EXPECT_EQ(record.ranks[0].operations.back().state, FlightState::failed);
  const std::vector<FlightFinding> findings =
      rendezvous::explain_flights(record.ranks, 2, record.written);
  ASSERT_FALSE(findings.empty());
  EXPECT_THAT(
      findings[0].text,
      AllOf(HasSubstr("barrier #2 of group 'world'"), HasSubstr("rank 0 waited until it failed"),
            HasSubstr("rank 1 has not come"), HasSubstr("last called all_reduce #1")));
}

TEST(NcclRecordTest, WhatStillRunsOnTheDeviceIsInTheRecord) {
  NcclJob job(2);
  job.job_page = page_of(2);
  std::atomic<bool> may_come{false};
  const auto thrown = job.run([&](Backend& backend) {
    Values values = {1};
    if (backend.rank() == 0) {
      const Work work = test::all_reduce(backend, buffer_of(values), buffer_of(values),
                                         ReduceOp::sum, async_call(OpKind::all_reduce, 1));
      const FlightRecord record = read_flight(*job.job_page);
      EXPECT_EQ(record.ranks[0].operations.at(0).state, FlightState::running);
      EXPECT_EQ(record.ranks[0].state, "in_collective");
      may_come = true;
      may_come.notify_all();
      work.wait();
    } else {
      may_come.wait(false);
      test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                       call_of(OpKind::all_reduce, 1));
    }
    backend.shutdown();
  });
  job.expect_well(thrown);
  EXPECT_EQ(read_flight(*job.job_page).ranks[0].operations.at(0).state, FlightState::done);
}

// A group of "cpu:cpu,cuda:nccl": two backends, and one slot of the job page.
TEST(NcclRecordTest, BackendsOfOneRankWriteToOneRecord) {
  NcclJob job(2);
  job.job_page = page_of(2);
  job.expect_well(job.run_owners([&](std::unique_ptr<Backend> nccl) {
    const int rank = nccl->rank();
    GroupOptions options = group_options(job.store, rank, 2);
    options.job_page = job.job_page;
    options.local_rank = rank;
    options.record = job.records[static_cast<std::size_t>(rank)];
    const std::unique_ptr<Backend> cpu = collectives::make_cpu_backend(options);
    Values values = {1};
    for (std::uint64_t i = 1; i <= 6; i += 2) {
      test::all_reduce(*cpu, buffer_of(values), buffer_of(values), ReduceOp::sum,
                       call_of(OpKind::all_reduce, i));
      test::barrier(*nccl, call_of(OpKind::barrier, i + 1));
    }
    cpu->shutdown();
    nccl->shutdown();
  }));
  const FlightRecord record = read_flight(*job.job_page);
  for (const rendezvous::RankFlight& rank : record.ranks) {
    EXPECT_EQ(rank.begun, 6U);
    ASSERT_EQ(rank.operations.size(), 6U);
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(rank.operations[i].sequence, i + 1);
      EXPECT_EQ(rank.operations[i].name, i % 2 == 0 ? "all_reduce" : "barrier");
      EXPECT_EQ(rank.operations[i].state, FlightState::done);
    }
  }
}

TEST(NcclRecordTest, StagedRecordsWhatItsHostBackendDoes) {
  NcclSimulation simulation;
  const std::shared_ptr<JobPage> page = page_of(2);
  const std::shared_ptr<rendezvous::Store> store = rendezvous::make_hash_store();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const std::optional<Error> error = error_of([&] {
        const std::shared_ptr<collectives::DeviceApi> device = simulation.device_of(rank);
        GroupOptions options = group_options(store, rank, 2);
        options.job_page = page;
        options.local_rank = rank;
        collectives::through_host::ThroughHostBackend backend(
            collectives::make_cpu_backend(options), device,
            std::make_shared<collectives::through_host::PinnedPool>(device));
        Values values(5000, 1);
        test::all_reduce(backend, buffer_of(values), buffer_of(values), ReduceOp::sum,
                         call_of(OpKind::all_reduce, 1));
      });
      EXPECT_FALSE(error) << error->what();
    });
  for (std::thread& thread : threads) thread.join();
  const FlightRecord record = read_flight(*page);
  EXPECT_THAT(names(record, 0), ElementsAre("all_reduce of world"));
  EXPECT_THAT(names(record, 1), ElementsAre("all_reduce of world"));
}

}  // namespace
}  // namespace dtrun::test
