// The local operations, grouped by family. None changes its inputs unless its name ends in '_'. All
// throw Error kInvalidArgument for shapes, dtypes or devices that do not fit, naming both sides.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

#include "dtrun/tensor/ops/matmul.h"
#include "dtrun/tensor/ops/pointwise.h"
#include "dtrun/tensor/ops/reduction.h"
#include "dtrun/tensor/ops/rows.h"
#include "dtrun/tensor/tensor.h"
#include "dtrun/tensor/tensor_options.h"

namespace dtrun::tensors {

// Creation (creation.cc)
LocalTensor empty(const Shape& shape, TensorOptions options = {});
LocalTensor zeros(const Shape& shape, TensorOptions options = {});
LocalTensor ones(const Shape& shape, TensorOptions options = {});
LocalTensor full(const Shape& shape, Scalar value, TensorOptions options = {});
/// Which elements of a sequence are made: a rank's share of one that it does not hold whole.
struct SequencePart {
  std::int64_t first;
  std::int64_t count;
};
/// 0, 1, ... n-1. As torch.arange, i64 unless the options say otherwise.
LocalTensor arange(std::int64_t n, TensorOptions options = {.dtype = DType::i64},
                   std::optional<SequencePart> part = {});
LocalTensor arange(double start, double end, double step, TensorOptions options,
                   std::optional<SequencePart> part = {});
/// How many that arange has. @throws Error kInvalidArgument where steps do not lead to the end
std::int64_t arange_count(double start, double end, double step, DType dtype);
/// `steps` numbers at equal distances, both ends included.
LocalTensor linspace(double start, double end, std::int64_t steps, TensorOptions options = {},
                     std::optional<SequencePart> part = {});
/// [rows, columns], 1 on the diagonal, 0 elsewhere.
LocalTensor eye(std::int64_t rows, std::int64_t columns, TensorOptions options = {});
/// A tensor on memory of the caller's, row-major, on the device that the options name; `release`
/// runs when its last user is gone. Without it the memory has to stay until then.
LocalTensor from_blob(void* data, const Shape& shape, TensorOptions options = {},
                      std::function<void()> release = nullptr);

/// Standard normal numbers keyed by seed and global element index (Philox 4x32-10 and Box-Muller):
/// element `index` of a tensor of `global_shape` is the same on every layout, to the last bit on
/// every machine. randn_block makes the block that starts at `offsets`. Made in f64 and converted;
/// integer dtypes truncate.
LocalTensor randn(const Shape& shape, RandomKey key, TensorOptions options = {});
LocalTensor randn_block(const Shape& global_shape, const Shape& offsets, const Shape& shape,
                        RandomKey key, TensorOptions options = {});
/// Row-major values with a shape. tensor({{1, 2}, {3, 4}}) is in literal.h.
LocalTensor tensor_from(const std::vector<double>& values, const Shape& shape, DType dtype);
LocalTensor tensor_from(const std::vector<std::int64_t>& values, const Shape& shape, DType dtype);

// Joining and splitting (view.cc)
LocalTensor cat(const std::vector<LocalTensor>& tensors, int dim = 0);
LocalTensor stack(const std::vector<LocalTensor>& tensors, int dim = 0);
/// Pieces of split_size along dim, the last one smaller; views.
std::vector<LocalTensor> split(const LocalTensor& a, std::int64_t split_size, int dim = 0);
std::vector<LocalTensor> split(const LocalTensor& a, const std::vector<std::int64_t>& sizes,
                               int dim = 0);
/// torch.chunk's rule, but always `chunks` pieces: trailing ones may be empty.
std::vector<LocalTensor> chunk(const LocalTensor& a, int chunks, int dim = 0);

}  // namespace dtrun::tensors
