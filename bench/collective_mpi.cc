// One rank of collective_bench: MPI_Allreduce, started by the mpirun of the library that this is
// built with.
// The C++ bindings of old would need a library of their own.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "collective_contender.h"

namespace {

class Mpi : public dtrun::bench::CollectiveContender {
 public:
  int rank() const override { return ask(MPI_Comm_rank); }
  int size() const override { return ask(MPI_Comm_size); }
  float* prepare(std::size_t count) override {
    tensor_.assign(count, 0);
    return tensor_.data();
  }
  void all_reduce() override {
    MPI_Allreduce(MPI_IN_PLACE, tensor_.data(), static_cast<int>(tensor_.size()), MPI_FLOAT,
                  MPI_SUM, MPI_COMM_WORLD);
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

 private:
  static int ask(int (*question)(MPI_Comm, int*)) {
    int answer = 0;
    question(MPI_COMM_WORLD, &answer);
    return answer;
  }
  std::vector<float> tensor_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Mpi mpi;
  const int result = dtrun::bench::run_contender(mpi, argc, argv);
  MPI_Finalize();
  return result;
}
