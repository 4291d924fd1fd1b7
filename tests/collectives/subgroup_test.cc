// Subgroups of another backend or timeout, and groups with one backend per device type. The second
// backend is a cpu backend that says it serves CUDA tensors: their elements lie in host memory.
#include <gtest/gtest.h>

#include <numeric>

#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/rendezvous/prefix_store.h"
#include "dtrun/tensor/ops.h"
#include "group_core.h"
#include "support/rank_threads.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::Error;
using base::ErrorCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using tensors::DeviceType;
using tensors::DType;
using test::run_failing_ranks;
using test::run_ranks;
using testing_support::contains;
using testing_support::error_of;

/// Passes everything on.
class HostedCuda : public Backend {
 public:
  explicit HostedCuda(std::unique_ptr<Backend> cpu) : cpu_(std::move(cpu)) {}
  std::string name() const override { return "nccl"; }
  DeviceType device_type() const override { return DeviceType::cuda; }
  int rank() const override { return cpu_->rank(); }
  int size() const override { return cpu_->size(); }
  std::optional<Error> lacks(const Fingerprint& fingerprint) const override {
    if (fingerprint.dtype != DType::f64) return std::nullopt;
    return Error(ErrorCode::kUnavailable, "backend 'nccl' has no float64 today");
  }
  Work start(Collective collective) override { return cpu_->start(std::move(collective)); }
  Work start(Message message) override { return cpu_->start(std::move(message)); }
  std::unique_ptr<Backend> split(const std::vector<int>& ranks, int list_index,
                                 const std::string& name, Call call) override {
    std::unique_ptr<Backend> part = cpu_->split(ranks, list_index, name, std::move(call));
    return part ? std::make_unique<HostedCuda>(std::move(part)) : nullptr;
  }
  void reject(const Fingerprint& fingerprint, const Error& error) override {
    cpu_->reject(fingerprint, error);
  }
  void abort(const Error& error) override { cpu_->abort(error); }
  TransportCounters counters() const override { return cpu_->counters(); }
  void shutdown() override { cpu_->shutdown(); }

 private:
  const std::unique_ptr<Backend> cpu_;
};

enum class With { both, cuda_only };

/// The group of those options over the two backends.
ProcessGroup on_two_backends(const GroupCore& from, const std::shared_ptr<rendezvous::Store>& store,
                             With with) {
  GroupOptions options = from.options();
  options.store = store;
  options.backend = "cpu";
  BackendSet set;
  if (with == With::both) set.cpu = make_cpu_backend(options);
  options.store = rendezvous::make_prefix_store("cuda", store);
  set.cuda = std::make_unique<HostedCuda>(make_cpu_backend(options));
  options.backend = with == With::both ? "cpu:cpu,cuda:nccl" : "nccl";
  BackendSpec spec = parse_backend_spec(options.backend);
  return ProcessGroup(
      std::make_shared<GroupCore>(std::move(options), std::move(spec), std::move(set)));
}

using Body = std::function<void(const ProcessGroup&)>;

/// Ranks as threads, each with such a group.
std::vector<std::optional<test::Thrown>> run_on_two(int size, With with, const Body& body) {
  const std::shared_ptr<rendezvous::Store> store =
      rendezvous::make_prefix_store("two", rendezvous::make_hash_store());
  return run_failing_ranks(size, {}, [&](const ProcessGroup& group) {
    GroupOptions options = test::group_options(store, group.rank(), group.size());
    body(on_two_backends(GroupCore(options, {}, {}), store, with));
  });
}

void expect_no_error(const std::vector<std::optional<test::Thrown>>& thrown) {
  for (const auto& mine : thrown) EXPECT_FALSE(mine.has_value()) << mine->text;
}

/// A tensor that says it is on a GPU.
LocalTensor cuda_tensor(const std::vector<double>& values, DType dtype = DType::f32) {
  const LocalTensor host =
      tensors::tensor_from(values, {static_cast<std::int64_t>(values.size())}, dtype);
  return LocalTensor(tensors::Storage::wrap(host.data(), host.bytes(), {DeviceType::cuda, 0},
                                            [host] { static_cast<void>(host); }),
                     dtype, host.shape(), host.strides());
}
float first(const LocalTensor& tensor) {
  return *tensor.data_as<float>();
}

TEST(TwoBackendsTest, TheTensorsDeviceChoosesTheBackend) {
  expect_no_error(run_on_two(3, With::both, [](const ProcessGroup& group) {
    EXPECT_EQ(group.backend_name(), "cpu:cpu,cuda:nccl");
    EXPECT_TRUE(contains(group.to_string(), "backend=cpu:cpu,cuda:nccl"));
    EXPECT_TRUE(group.serves(DeviceType::cpu) && group.serves(DeviceType::cuda));
    const TransportCounters before = group.counters();
    for (int i = 0; i < 5; ++i) {
      const LocalTensor here = tensors::ones({1});
      const LocalTensor there = cuda_tensor({2, 2});
      const Work work = group.all_reduce(there, ReduceOp::sum, {.async = true});
      group.all_reduce(here);
      work.wait();
      EXPECT_EQ(here.item(), 3);
      EXPECT_EQ(first(there), 6);
      group.barrier();
    }
    EXPECT_GT(group.counters().shared_memory_bytes_sent, before.shared_memory_bytes_sent);
    group.monitored_barrier();
    const LocalTensor message = cuda_tensor({0});
    if (group.rank() == 0) group.send(cuda_tensor({7}), 1);
    if (group.rank() == 1) {
      EXPECT_EQ(group.recv(message, 0), 0);
      EXPECT_EQ(first(message), 7);
    }
  }));
}

TEST(TwoBackendsTest, ASplitSplitsBoth) {
  expect_no_error(run_on_two(3, With::both, [](const ProcessGroup& group) {
    const ProcessGroup pair = group.split({{2, 0}}, "pair");
    EXPECT_EQ(pair.valid(), group.rank() != 1);
    if (!pair.valid()) return;
    EXPECT_EQ(pair.rank(), group.rank() == 2 ? 0 : 1);
    EXPECT_EQ(pair.backend_name(), "cpu:cpu,cuda:nccl");
    const LocalTensor here = tensors::full({1}, group.rank());
    const LocalTensor there = cuda_tensor({static_cast<double>(group.rank())});
    pair.broadcast(here, 0);
    pair.broadcast(there, 0);
    EXPECT_EQ(here.item(), 2);
    EXPECT_EQ(first(there), 2);
  }));
}

TEST(TwoBackendsTest, ARejectionReachesPeersOnBothAndDevicesAreNotMixed) {
  const auto thrown = run_on_two(3, With::both, [](const ProcessGroup& group) {
    if (group.rank() == 0) group.all_gather({tensors::ones({1})}, cuda_tensor({1}));
    if (group.rank() == 1) group.all_reduce(tensors::ones({1}));
    group.all_reduce(cuda_tensor({1}));
  });
  ASSERT_TRUE(thrown[0] && thrown[1] && thrown[2]);
  EXPECT_EQ(thrown[0]->code, ErrorCode::kInvalidArgument) << thrown[0]->text;
  for (const std::size_t peer : {1, 2})
    EXPECT_EQ(thrown[peer]->code, ErrorCode::kPeerFailed) << thrown[peer]->text;
  expect_no_error(run_on_two(2, With::both, [](const ProcessGroup& group) {
    const P2POp::Kind kind = P2POp::Kind::send;
    const auto error = error_of([&] {
      group.batch_isend_irecv({{kind, tensors::ones({1}), 1 - group.rank(), 0},
                               {kind, cuda_tensor({1}), 1 - group.rank(), 0}});
    });
    ASSERT_TRUE(error.has_value());
    EXPECT_TRUE(contains(error->what(), "on different devices")) << error->what();
  }));
}

TEST(TwoBackendsTest, WhatABackendLacksIsRefusedOnAllRanks) {
  const auto thrown = run_on_two(2, With::both, [](const ProcessGroup& group) {
    if (group.rank() == 0) group.all_reduce(cuda_tensor({1}, DType::f64));
    group.all_reduce(cuda_tensor({1}));
  });
  ASSERT_TRUE(thrown[0] && thrown[1]);
  EXPECT_EQ(thrown[0]->code, ErrorCode::kUnavailable) << thrown[0]->text;
  EXPECT_EQ(thrown[1]->code, ErrorCode::kPeerFailed) << thrown[1]->text;
  EXPECT_TRUE(contains(thrown[1]->text, "has no float64 today")) << thrown[1]->text;
}

TEST(TwoBackendsTest, AGroupForTheGpuAloneRefusesTheRest) {
  expect_no_error(run_on_two(1, With::cuda_only, [](const ProcessGroup& group) {
    EXPECT_EQ(group.backend_name(), "nccl");
    group.barrier();
    std::optional<Error> error = error_of([&] { group.all_reduce(tensors::ones({1})); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(contains(error->what(),
                         "the tensor is on cpu, and group 'world' has no backend "
                         "for it: its backend is 'nccl'"))
        << error->what();
    error = error_of([&] { group.monitored_barrier(); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
    EXPECT_TRUE(contains(error->what(), "has no monitored_barrier")) << error->what();
  }));
}

TEST(SplitOptionsTest, AGroupOfAnotherBackendIsMadeOverTheStore) {
  const auto store = rendezvous::make_hash_store();
  expect_no_error(run_on_two(4, With::cuda_only, [](const ProcessGroup& group) {
    for (int round = 0; round < 2; ++round) {
      const ProcessGroup half =
          group.split({{0, 2}, {3, 1}}, "half", {.backend = "cpu", .timeout = seconds(20)});
      ASSERT_TRUE(half.valid());
      EXPECT_EQ(half.backend_name(), "cpu");
      EXPECT_EQ(half.timeout(), seconds(20));
      EXPECT_EQ(half.name(), "half");
      const LocalTensor tensor = tensors::full({3}, group.rank());
      half.all_reduce(tensor);
      EXPECT_EQ(tensor.to_vector(), std::vector<double>(3, group.rank() % 2 == 0 ? 2 : 4));
      // And from there on by the new backend.
      const ProcessGroup again = half.split({{1, 0}}, "again");
      again.barrier();
      const ProcessGroup one = group.split({{1}}, "one", {.backend = "cpu"});
      EXPECT_EQ(one.valid(), group.rank() == 1);
      EXPECT_EQ(one.name(), "one");
    }
  }));
}

TEST(SplitOptionsTest, TheTimeoutIsTheNewGroupsOwn) {
  const auto thrown = run_failing_ranks(2, {}, [](const ProcessGroup& group) {
    const ProcessGroup quick = group.split({{0, 1}}, "quick", {.timeout = milliseconds(100)});
    if (group.rank() == 0) quick.all_reduce(tensors::ones({1}));
    quick.recv(tensors::ones({1}), 0, 0, {.timeout = seconds(30)});
  });
  for (const auto& mine : thrown) {
    ASSERT_TRUE(mine.has_value());
    EXPECT_EQ(mine->code, ErrorCode::kTimeout) << mine->text;
    EXPECT_TRUE(contains(mine->text, "of group 'quick' for rank 1")) << mine->text;
  }
}

TEST(SplitOptionsTest, WrongOptionsFailOnAllRanks) {
  const std::pair<SplitOptions, const char*> wrong[] = {
      {{.backend = "smoke"}, "no backend 'smoke'"},
      {{.timeout = seconds(0)}, "the timeout of group 'bad' is 0"}};
  for (const auto& [options, text] : wrong) {
    const auto thrown = run_failing_ranks(2, {}, [&](const ProcessGroup& group) {
      group.split({{0, 1}}, "bad", group.rank() == 0 ? options : SplitOptions{});
      group.barrier();
    });
    ASSERT_TRUE(thrown[0] && thrown[1]);
    EXPECT_EQ(thrown[0]->code, ErrorCode::kInvalidArgument) << thrown[0]->text;
    EXPECT_TRUE(contains(thrown[0]->text, text)) << thrown[0]->text;
    EXPECT_EQ(thrown[1]->code, ErrorCode::kPeerFailed) << thrown[1]->text;
  }
}

TEST(SplitOptionsTest, ABackendThatIsNotThereIsRefused) {
  for (const char* name : {"gloo", "mpi", "nccl", "staged"}) {
    const BackendKind& kind = backend_kind(name);
    const std::optional<Error> obstacle = kind.obstacle();
    if (!obstacle) continue;
    const auto thrown = run_failing_ranks(2, {}, [name](const ProcessGroup& group) {
      group.split({{0, 1}}, "other", {.backend = name});
    });
    for (const auto& mine : thrown) {
      ASSERT_TRUE(mine.has_value());
      EXPECT_EQ(mine->code, ErrorCode::kUnavailable) << mine->text;
      EXPECT_TRUE(contains(mine->text, "usable here are: cpu")) << mine->text;
    }
  }
}

}  // namespace
}  // namespace dtrun::collectives
