// One rank of collective_bench: gloo over TCP on the loopback, started by dtrun. Its first argument
// is an empty folder for gloo's rendezvous. The class measured is AllreduceHalvingDoubling: the
// newer gloo::allreduce stalls for milliseconds between 16 KiB and 256 KiB in the 2022 library.
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "collective_contender.h"

namespace {

int number_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

class Gloo : public dtrun::bench::CollectiveContender {
 public:
  explicit Gloo(const char* folder)
      : context_(std::make_shared<gloo::rendezvous::Context>(number_of("RANK"),
                                                             number_of("WORLD_SIZE"))) {
    gloo::transport::tcp::attr address;
    address.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(address);
    gloo::rendezvous::FileStore store(folder);
    context_->connectFullMesh(store, device);
  }
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  float* prepare(std::size_t count) override {
    algorithm_.reset();
    tensor_.assign(count, 0);
    algorithm_ = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
        context_, std::vector<float*>{tensor_.data()}, static_cast<int>(count));
    return tensor_.data();
  }
  void all_reduce() override { algorithm_->run(); }
  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::vector<float> tensor_;
  std::unique_ptr<gloo::AllreduceHalvingDoubling<float>> algorithm_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 64;
  Gloo gloo(argv[1]);
  return dtrun::bench::run_contender(gloo, argc - 1, argv + 1);
}
