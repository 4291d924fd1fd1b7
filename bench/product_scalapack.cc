// ScaLAPACK's side of dtensor_bench: "matmul1D_f32|matmul2D_f64|... SIDE" per line in, seconds a
// call out. All three matrices are dealt block-cyclically over a grid of processes; psgemm or
// pdgemm multiplies them. Each answer is the slowest process's time for the best of three sizes of
// block.
//
//     mpirun -n 4 product_scalapack
#define OMPI_SKIP_MPICXX 1  // the C calls alone
#include <mpi.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

extern "C" {
void Cblacs_get(int context, int what, int* value);
void Cblacs_gridinit(int* context, const char* order, int rows, int columns);
void Cblacs_gridinfo(int context, int* rows, int* columns, int* row, int* column);
void Cblacs_gridexit(int context);
int numroc_(const int* n, const int* block, const int* at, const int* first, const int* count);
void descinit_(int* descriptor, const int* rows, const int* columns, const int* row_block,
               const int* column_block, const int* first_row, const int* first_column,
               const int* context, const int* leading, int* info);
void psgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
             const int* k, const float* alpha, const float* a, const int* ia, const int* ja,
             const int* a_descriptor, const float* b, const int* ib, const int* jb,
             const int* b_descriptor, const float* beta, float* c, const int* ic, const int* jc,
             const int* c_descriptor);
void pdgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
             const int* k, const double* alpha, const double* a, const int* ia, const int* ja,
             const int* a_descriptor, const double* b, const int* ib, const int* jb,
             const int* b_descriptor, const double* beta, double* c, const int* ic, const int* jc,
             const int* c_descriptor);
}

namespace {

constexpr int kZero = 0, kOne = 1;

struct Grid {
  int rows, columns;
};

/// A square matrix in blocks over the grid.
template <typename T>
struct Matrix {
  Matrix(int context, int side, int block) {
    int rows, columns, row, column, info;
    Cblacs_gridinfo(context, &rows, &columns, &row, &column);
    const int local_rows = numroc_(&side, &block, &row, &kZero, &rows);
    const int local_columns = numroc_(&side, &block, &column, &kZero, &columns);
    const int leading = std::max(1, local_rows);
    descinit_(descriptor.data(), &side, &side, &block, &block, &kZero, &kZero, &context, &leading,
              &info);
    elements.assign(
        static_cast<std::size_t>(local_rows) * static_cast<std::size_t>(local_columns) + 1, T{0.5});
  }
  std::array<int, 9> descriptor;
  std::vector<T> elements;
};

double slowest(double seconds) {
  double all = 0;
  MPI_Allreduce(&seconds, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

template <typename T, typename Gemm>
double time_product(Gemm gemm, int context, int side, int block) {
  const Matrix<T> a(context, side, block), b(context, side, block);
  Matrix<T> c(context, side, block);
  const T one = 1, none = 0;
  const auto multiply = [&] {
    gemm("N", "N", &side, &side, &side, &one, a.elements.data(), &kOne, &kOne, a.descriptor.data(),
         b.elements.data(), &kOne, &kOne, b.descriptor.data(), &none, c.elements.data(), &kOne,
         &kOne, c.descriptor.data());
  };
  multiply();
  double spent = 0;
  int calls = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  while (spent < 0.02) {
    const double begin = MPI_Wtime();
    multiply();
    spent += slowest(MPI_Wtime() - begin);
    ++calls;
  }
  return spent / calls;
}

double best_time(Grid grid, bool of_doubles, int side) {
  int context;
  Cblacs_get(-1, 0, &context);
  Cblacs_gridinit(&context, "Row", grid.rows, grid.columns);
  double best = std::numeric_limits<double>::infinity();
  for (const int block : {64, 128, 256}) {
    const double seconds = of_doubles ? time_product<double>(pdgemm_, context, side, block)
                                      : time_product<float>(psgemm_, context, side, block);
    best = std::min(best, seconds);
  }
  Cblacs_gridexit(context);
  return best;
}

/// Rank 0's question to all. A broadcast that is waited for would keep the cores busy while the
/// other contender has its turn.
void hand_round(std::array<int, 3>& question) {
  MPI_Request request;
  MPI_Ibcast(question.data(), 3, MPI_INT, 0, MPI_COMM_WORLD, &request);
  const timespec pause = {0, 1'000'000};
  for (int is_here = 0; !is_here;) {
    MPI_Test(&request, &is_here, MPI_STATUS_IGNORE);
    if (!is_here) ::nanosleep(&pause, nullptr);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (;;) {
    std::array<int, 3> question = {0, 0, 0};  // axes, side, whether of doubles
    std::array<char, 16> text;
    if (rank == 0 && std::scanf("%15s %d", text.data(), &question[1]) == 2) {
      const std::string name = text.data();
      question[0] = name.starts_with("matmul1D") ? 1 : 2;
      question[2] = name.ends_with("f64") ? 1 : 0;
    }
    hand_round(question);
    if (question[0] == 0) break;
    const double seconds = best_time(question[0] == 1 ? Grid{size, 1} : Grid{2, size / 2},
                                     question[2] == 1, question[1]);
    if (rank == 0) {
      std::printf("%.9f\n", seconds);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
}
