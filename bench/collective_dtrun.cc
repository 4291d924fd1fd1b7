// One rank of collective_bench: dtrun's cpu backend, started by dtrun.
#include "collective_contender.h"
#include "dtrun/dtrun.h"

namespace {

class Dtrun : public dtrun::bench::CollectiveContender {
 public:
  int rank() const override { return worker_.rank(); }
  int size() const override { return worker_.world_size(); }
  float* prepare(std::size_t count) override {
    tensor_ = dtrun::tensors::zeros({static_cast<std::int64_t>(count)});
    return static_cast<float*>(tensor_.data());
  }
  void all_reduce() override { worker_.world().all_reduce(tensor_); }
  void barrier() override { worker_.world().barrier(); }

 private:
  dtrun::runtime::Worker worker_ = dtrun::runtime::init();
  dtrun::tensors::LocalTensor tensor_;
};

}  // namespace

int main(int argc, char** argv) {
  Dtrun dtrun;
  return dtrun::bench::run_contender(dtrun, argc, argv);
}
