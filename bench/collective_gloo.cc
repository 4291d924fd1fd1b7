// One rank of collective_bench: gloo over TCP, started by dtrun: on the loopback, or where dtrun
// has several nodes at the address of this host's name. Its first argument is an empty folder for
// gloo's rendezvous. all_reduce is AllreduceHalvingDoubling: the newer
// gloo::allreduce stalls for milliseconds between 16 KiB and 256 KiB in the 2022 library.
#include <gloo/allgather.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "collective_contender.h"

namespace {

using dtrun::bench::Buffers;
using dtrun::bench::Call;
using dtrun::bench::Operation;

int number_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

class Gloo : public dtrun::bench::Contender {
 public:
  explicit Gloo(const char* folder)
      : context_(std::make_shared<gloo::rendezvous::Context>(number_of("RANK"),
                                                             number_of("WORLD_SIZE"))) {
    gloo::transport::tcp::attr address;
    address.hostname = number_of("GROUP_WORLD_SIZE") > 1 ? host_name() : "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(address);
    gloo::rendezvous::FileStore store(folder);
    context_->connectFullMesh(store, device);
  }
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  // reduce_scatter works in its input, and leaves a part of it there: no call like the others'.
  bool has(Operation operation) const override { return operation != Operation::reduce_scatter; }
  // A call takes 50 us and more: no batch is needed, and an all_reduce is made for one buffer.
  int most_buffers() const override { return 1; }
  void prepare(const Call& call, const std::vector<Buffers>& buffers) override {
    all_reduce_.reset();
    call_ = call;
    input_ = buffers[0].input.data_as<float>();
    output_ = buffers[0].output.data_as<float>();
    inputs_ = static_cast<std::size_t>(buffers[0].input.numel());
    outputs_ = static_cast<std::size_t>(buffers[0].output.numel());
    if (call.operation == Operation::all_reduce)
      all_reduce_ = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
          context_, std::vector<float*>{output_}, static_cast<int>(outputs_));
  }
  void run(std::size_t) override;
  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  std::vector<double> collect(const std::vector<double>& values) override {
    std::vector<double> sent = values;
    std::vector<double> all(rank() == 0 ? values.size() * static_cast<std::size_t>(size()) : 0);
    gloo::GatherOptions options(context_);
    options.setInput(sent.data(), sent.size());
    if (rank() == 0) options.setOutput(all.data(), all.size());
    options.setRoot(0);
    gloo::gather(options);
    return all;
  }
  std::vector<double> share(const std::vector<double>& values) override {
    std::vector<double> sent = values;
    std::vector<double> all(values.size() * static_cast<std::size_t>(size()));
    gloo::AllgatherOptions options(context_);
    options.setInput(sent.data(), sent.size());
    options.setOutput(all.data(), all.size());
    gloo::allgather(options);
    return all;
  }

 private:
  template <typename Options>
  void set_both(Options& options) const {
    options.setInput(input_, inputs_);
    options.setOutput(output_, outputs_);
  }
  void send_and_receive();

  std::shared_ptr<gloo::rendezvous::Context> context_;
  Call call_;
  float* input_ = nullptr;
  float* output_ = nullptr;
  std::size_t inputs_ = 0;
  std::size_t outputs_ = 0;
  std::unique_ptr<gloo::AllreduceHalvingDoubling<float>> all_reduce_;
};

void Gloo::send_and_receive() {
  const auto sent = context_->createUnboundBuffer(input_, inputs_ * sizeof(float));
  const auto received = context_->createUnboundBuffer(output_, outputs_ * sizeof(float));
  received->recv((rank() + size() - 1) % size(), 0);
  sent->send((rank() + 1) % size(), 0);
  sent->waitSend();
  received->waitRecv();
}

void Gloo::run(std::size_t) {
  switch (call_.operation) {
    case Operation::all_reduce:
      all_reduce_->run();
      return;
    case Operation::reduce: {
      gloo::ReduceOptions options(context_);
      set_both(options);
      options.setRoot(call_.root);
      options.setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
      gloo::reduce(options);
      return;
    }
    case Operation::broadcast: {
      gloo::BroadcastOptions options(context_);
      options.setOutput(output_, outputs_);
      options.setRoot(call_.root);
      gloo::broadcast(options);
      return;
    }
    case Operation::all_gather: {
      gloo::AllgatherOptions options(context_);
      set_both(options);
      gloo::allgather(options);
      return;
    }
    case Operation::all_to_all: {
      gloo::AlltoallOptions options(context_);
      set_both(options);
      gloo::alltoall(options);
      return;
    }
    case Operation::gather: {
      gloo::GatherOptions options(context_);
      options.setInput(input_, inputs_);
      if (rank() == call_.root) options.setOutput(output_, outputs_);
      options.setRoot(call_.root);
      gloo::gather(options);
      return;
    }
    case Operation::scatter: {
      gloo::ScatterOptions options(context_);
      std::vector<float*> parts;
      for (std::size_t i = 0; rank() == call_.root && i < inputs_; i += outputs_)
        parts.push_back(input_ + i);
      if (!parts.empty()) options.setInputs(parts, outputs_);
      options.setOutput(output_, outputs_);
      options.setRoot(call_.root);
      gloo::scatter(options);
      return;
    }
    case Operation::send_recv:
      send_and_receive();
      return;
    case Operation::barrier:
    case Operation::reduce_scatter:
      barrier();
      return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 64;
  Gloo gloo(argv[1]);
  return dtrun::bench::run_contender(gloo, argc - 1, argv + 1);
}
