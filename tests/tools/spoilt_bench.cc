// One rank of `dtrun-bench collectives all_gather` over a library that makes a mistake on rank 1:
//     spoilt_bench element|stale|nothing FILE
// element: one element of each result is another. stale: every second call does nothing, where the
// result of the call before it lies.
#include <cstring>
#include <string>

#include "bench/collectives_command.h"
#include "bench/group_contender.h"
#include "dtrun/runtime/worker.h"

namespace {

using namespace dtrun;

class Spoilt : public bench::GroupContender {
 public:
  Spoilt(const runtime::Worker& worker, std::string mistake)
      : GroupContender(worker.world(), worker.store(), worker.device()),
        mistake_(std::move(mistake)) {}
  void prepare(const bench::Call& call, const std::vector<bench::Buffers>& buffers) override {
    GroupContender::prepare(call, buffers);
    output_ = buffers[0].output;
  }
  void run(std::size_t buffer) override {
    GroupContender::run(buffer);
    if (rank() != 1) return;
    auto* const bytes = output_.data_as<char>();
    if (mistake_ == "element") bytes[0] ^= 1;
    if (mistake_ != "stale") return;
    if (calls_++ % 2 == 0)
      before_.assign(bytes, bytes + output_.bytes());
    else
      std::memcpy(bytes, before_.data(), before_.size());
  }

 private:
  std::string mistake_;
  tensors::LocalTensor output_;
  std::string before_;
  int calls_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const runtime::Worker worker = runtime::init();
  Spoilt spoilt(worker, argv[1]);
  bench::Contender* const contenders[] = {&spoilt};
  return bench::exit_code_of(bench::measure_collectives({.operations = {"all_gather"},
                                                         .least_bytes = 4096,
                                                         .most_bytes = 4096,
                                                         .samples = 3,
                                                         .warmup = 2,
                                                         .calls = 1,
                                                         .json = argv[2]},
                                                        contenders));
}
