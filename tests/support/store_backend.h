// StoreBackend: a backend of a program's own, as small as one can be: a rank puts what it gives
// into the group's store, and takes what the others have put there. It knows broadcast, all_reduce
// of f32 by sum, and barrier. One thread calls; any may abort.
#pragma once

#include <fmt/core.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/prefix_store.h"

namespace dtrun::test {

class StoreBackend : public collectives::Backend {
 public:
  using Call = collectives::Call;
  using Work = collectives::Work;
  using OpKind = collectives::OpKind;
  using Error = base::Error;

  explicit StoreBackend(const collectives::GroupOptions& options) : options_(options) {}

  std::string name() const override { return "store"; }
  tensors::DeviceType device_type() const override { return tensors::DeviceType::cpu; }
  int rank() const override { return options_.rank; }
  int size() const override { return static_cast<int>(options_.global_ranks.size()); }

  std::optional<Error> lacks(const collectives::Fingerprint& print) const override {
    const bool sums = print.reduce_op == collectives::ReduceOp::sum ||
                      print.reduce_op == collectives::ReduceOp::premul_sum;
    if (print.kind == OpKind::broadcast || print.kind == OpKind::barrier ||
        print.kind == OpKind::split ||
        (print.kind == OpKind::all_reduce && sums && print.dtype == tensors::DType::f32))
      return std::nullopt;
    return Error(base::ErrorCode::kUnavailable,
                 fmt::format("backend 'store' has no {}", print.describe()));
  }

  Work start(collectives::Collective given) override {
    const OpKind kind = given.kind();
    const std::string mine = given.inputs.empty() ? "" : bytes_of(given.inputs.front());
    if (kind != OpKind::broadcast || rank() == given.root())
      options_.store->set(key(given.call, rank()), "=" + mine);
    const bool reduces = kind == OpKind::all_reduce;
    std::vector<float> sum(reduces ? mine.size() / sizeof(float) : 0);
    for (int peer = 0; peer < size(); ++peer) {
      if (kind == OpKind::broadcast && peer != given.root()) continue;
      const std::string theirs = hear(key(given.call, peer), given.call.deadline);
      if (reduces) add(theirs, sum);
      if (kind == OpKind::broadcast && !given.outputs.empty())
        std::memcpy(given.outputs.front().data, theirs.data(), theirs.size());
    }
    if (reduces && !sum.empty()) std::memcpy(given.outputs.front().data, sum.data(), mine.size());
    if (given.call.finish) given.call.finish();
    given.call.timer.end(collectives::CallTimer::Outcome::done);
    return given.call.async ? Work(std::make_shared<Over>()) : Work();
  }
  Work start(collectives::Message) override {
    throw Error(base::ErrorCode::kUnavailable, "backend 'store' has no messages");
  }

  std::unique_ptr<Backend> split(const std::vector<int>& ranks, int list_index,
                                 const std::string& name, Call call) override {
    collectives::GroupOptions child = options_;
    child.name = name;
    child.store = rendezvous::make_prefix_store(
        fmt::format("split/{}.{}", call.fingerprint.sequence, list_index), options_.store);
    child.global_ranks.clear();
    for (const int member : ranks) {
      if (member == rank()) child.rank = static_cast<int>(child.global_ranks.size());
      child.global_ranks.push_back(options_.global_ranks[static_cast<std::size_t>(member)]);
    }
    // All must have come before some go on.
    call.async = false;
    call.fingerprint.kind = OpKind::barrier;
    start(collectives::Collective{{}, {}, std::move(call)});
    return ranks.empty() ? nullptr : std::make_unique<StoreBackend>(child);
  }

  void reject(const collectives::Fingerprint& print, const Error& error) override {
    abort(Error(base::ErrorCode::kPeerFailed, fmt::format("rank {} rejected its {}: {}", rank(),
                                                          print.describe(), error.summary())));
  }
  void abort(const Error& error) override {
    options_.store->compare_set(
        "failure", "", fmt::format("{} {}", static_cast<int>(error.code()), error.summary()));
  }
  collectives::TransportCounters counters() const override { return {}; }
  void shutdown() override {}

 private:
  /// It was over when the call returned.
  class Over : public Work::State {
   public:
    Over() {
      // Nobody can have put a callback behind it yet.
      static_cast<void>(settle(nullptr, nullptr));
    }
    void wait(base::Deadline) override {}
    bool is_completed() override { return true; }
    std::exception_ptr exception() override { return nullptr; }
  };

  static std::string key(const Call& call, int rank) {
    return fmt::format("call/{}/{}", call.fingerprint.sequence, rank);
  }
  static std::string bytes_of(const collectives::Buffer& buffer) {
    return {static_cast<const char*>(buffer.data), buffer.bytes()};
  }
  static void add(const std::string& bytes, std::vector<float>& sum) {
    std::vector<float> terms(bytes.size() / sizeof(float));
    if (!terms.empty()) std::memcpy(terms.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i < terms.size(); ++i) sum[i] += terms[i];
  }

  /// Waits in slices: the group may fail meanwhile.
  std::string hear(const std::string& key, base::Deadline deadline) {
    for (;;) {
      if (const auto failure = options_.store->try_get("failure")) {
        const std::size_t space = failure->find(' ');
        throw Error(static_cast<base::ErrorCode>(std::stoi(failure->substr(0, space))),
                    failure->substr(space + 1));
      }
      try {
        const auto slice = base::Deadline::after(std::chrono::milliseconds(20));
        return options_.store->get(key, deadline.earlier(slice)).substr(1);
      } catch (const Error& error) {
        if (error.code() != base::ErrorCode::kTimeout || deadline.expired()) throw;
      }
    }
  }

  const collectives::GroupOptions options_;
};

}  // namespace dtrun::test
