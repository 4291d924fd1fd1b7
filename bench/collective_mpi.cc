// One rank of collective_bench: MPI's collectives, started by the mpirun of the library that this
// is built with. The C++ bindings of old would need a library of their own.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "collective_contender.h"

namespace {

using dtrun::bench::Buffers;
using dtrun::bench::Call;
using dtrun::bench::Operation;

class Mpi : public dtrun::bench::Contender {
 public:
  int rank() const override { return ask(MPI_Comm_rank); }
  int size() const override { return ask(MPI_Comm_size); }
  void prepare(const Call& call, const std::vector<Buffers>& buffers) override {
    call_ = call;
    buffers_ = buffers;
  }
  void run(std::size_t buffer) override;
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  std::vector<double> collect(const std::vector<double>& values) override {
    const auto count = static_cast<int>(values.size());
    std::vector<double> all(rank() == 0 ? values.size() * static_cast<std::size_t>(size()) : 0);
    MPI_Gather(values.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return all;
  }
  std::vector<double> share(const std::vector<double>& values) override {
    const auto count = static_cast<int>(values.size());
    std::vector<double> all(values.size() * static_cast<std::size_t>(size()));
    MPI_Allgather(values.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, MPI_COMM_WORLD);
    return all;
  }

 private:
  static int ask(int (*question)(MPI_Comm, int*)) {
    int answer = 0;
    question(MPI_COMM_WORLD, &answer);
    return answer;
  }
  Call call_;
  std::vector<Buffers> buffers_;
};

void Mpi::run(std::size_t buffer) {
  void* const input = buffers_[buffer].input.data();
  void* const output = buffers_[buffer].output.data();
  const auto count = static_cast<int>(call_.count);
  const MPI_Comm all = MPI_COMM_WORLD;
  switch (call_.operation) {
    case Operation::all_reduce:
      MPI_Allreduce(MPI_IN_PLACE, output, count, MPI_FLOAT, MPI_SUM, all);
      return;
    case Operation::reduce: {
      const bool is_root = rank() == call_.root;
      MPI_Reduce(is_root ? MPI_IN_PLACE : output, is_root ? output : nullptr, count, MPI_FLOAT,
                 MPI_SUM, call_.root, all);
      return;
    }
    case Operation::broadcast:
      MPI_Bcast(output, count, MPI_FLOAT, call_.root, all);
      return;
    case Operation::all_gather:
      MPI_Allgather(input, count, MPI_FLOAT, output, count, MPI_FLOAT, all);
      return;
    case Operation::reduce_scatter:
      MPI_Reduce_scatter_block(input, output, count, MPI_FLOAT, MPI_SUM, all);
      return;
    case Operation::all_to_all:
      MPI_Alltoall(input, count, MPI_FLOAT, output, count, MPI_FLOAT, all);
      return;
    case Operation::gather:
      MPI_Gather(input, count, MPI_FLOAT, output, count, MPI_FLOAT, call_.root, all);
      return;
    case Operation::scatter:
      MPI_Scatter(input, count, MPI_FLOAT, output, count, MPI_FLOAT, call_.root, all);
      return;
    case Operation::barrier:
      MPI_Barrier(all);
      return;
    case Operation::send_recv:
      MPI_Sendrecv(input, count, MPI_FLOAT, (rank() + 1) % size(), 0, output, count, MPI_FLOAT,
                   (rank() + size() - 1) % size(), 0, all, MPI_STATUS_IGNORE);
      return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Mpi mpi;
  const int result = dtrun::bench::run_contender(mpi, argc, argv);
  MPI_Finalize();
  return result;
}
