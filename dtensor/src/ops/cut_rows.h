// CutRows: rows of which ranks hold stretches, and what all ranks know of the rows once a few
// numbers of each stretch have come, in one collective for each mesh axis that cuts the rows.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrun/tensor/ops/reduction.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {

enum class Distances : std::uint8_t { from_mean, from_zero };

class CutRows {
 public:
  /// @param dims of a row, kept
  CutRows(const Tensor& a, ReducedDims dims, Distances distances);

  const Tensor& tensor() const { return a_; }
  /// This rank's elements, of f32 at least.
  const LocalTensor& part() const { return part_; }
  /// From the mean of the stretch, or from 0.
  const LocalTensor& distances() const { return distances_; }
  LocalTensor total(const LocalTensor& part) const { return tensors::sum(part, dims_.dims, true); }
  double row_size() const { return static_cast<double>(reduced_count(a_.shape(), dims_)); }

  /// @param more numbers of each row, which travel along
  void merge(const std::vector<LocalTensor>& more = {});
  // After merge(): of a row, the reduced dims 1.
  const LocalTensor& mean() const { return mean_; }  ///< or 0
  LocalTensor squares() const { return squares_; }   ///< of the distances from it, summed
  /// The numbers of all stretches that travelled along.
  LocalTensor more(int which) const { return numbers(kOwn + which); }
  /// How far the means of the stretches are from that of the row.
  const LocalTensor& shifts() const { return shifts_; }

 private:
  static constexpr int kOwn = 3;
  LocalTensor numbers(int which) const { return all_.select(a_.dim(), which); }

  const Tensor a_;
  const ReducedDims dims_;
  LocalTensor part_, counts_, means_, distances_;
  LocalTensor all_, mean_, shifts_, squares_;
};

}  // namespace dtrun::dtensor
