#include "mpi/mpi_reduction.h"

#include <array>
#include <mutex>
#include <utility>

namespace dtrun::collectives::mpi {

using tensors::CombineOp;
using tensors::DType;
using tensors::kDTypes;

namespace {

constexpr std::size_t kOps = static_cast<std::size_t>(CombineOp::bxor) + 1;

// MPI hands its function no argument of the caller's: there is one for each op and dtype.
template <std::size_t kIndex>
void combine(void* input, void* accumulator, int* count, MPI_Datatype*) {
  constexpr auto kOp = static_cast<CombineOp>(kIndex / kDTypes);
  constexpr auto kDType = static_cast<DType>(kIndex % kDTypes);
  tensors::combine(kOp, kDType, accumulator, input, *count);
}

template <std::size_t... kIndices>
constexpr auto functions(std::index_sequence<kIndices...>) {
  return std::array<MPI_User_function*, sizeof...(kIndices)>{combine<kIndices>...};
}

constexpr auto kFunctions = functions(std::make_index_sequence<kOps * kDTypes>());

}  // namespace

MPI_Op reduction(const MpiProcess& process, CombineOp op, DType dtype) {
  // Of the process, as MPI is.
  static std::mutex mutex;
  static std::array<MPI_Op, kOps * kDTypes> made{};
  const std::size_t index =
      static_cast<std::size_t>(op) * kDTypes + static_cast<std::size_t>(dtype);
  constexpr int kCommutes = 1;
  const std::scoped_lock lock(mutex);
  if (made[index] == nullptr)
    process.require(process.api().op_create(kFunctions[index], kCommutes, &made[index]),
                    "MPI_Op_create");
  return made[index];
}

MPI_Datatype item_type(const MpiApi& api, DType dtype) {
  switch (tensors::item_size(dtype)) {
    case 1:
      return api.bytes_1;
    case 2:
      return api.bytes_2;
    case 4:
      return api.bytes_4;
    default:
      return api.bytes_8;
  }
}

}  // namespace dtrun::collectives::mpi
