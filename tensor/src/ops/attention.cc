#include "dtrun/tensor/ops/attention.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "dtrun/base/error.h"
#include "ops/attention_bf16.h"
#include "ops/attention_few.h"
#include "ops/attention_operand.h"
#include "ops/attention_scores.h"
#include "ops/device_attention.h"
#include "ops/map_call.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

[[noreturn]] void refuse(std::string_view name, const LocalTensor& a, const LocalTensor& b,
                         std::string why) {
  throw base::Error(
      base::ErrorCode::kInvalidArgument,
      fmt::format("{} of {} {} and {} {}", name, dtype_name(a.dtype()), shape_to_string(a.shape()),
                  dtype_name(b.dtype()), shape_to_string(b.shape())),
      std::move(why),
      "reshape() or to() them: query [..., L, E], key [..., S, E], value [..., S, Ev]");
}

void require_matrices(std::string_view name, const LocalTensor& query, const LocalTensor& other,
                      const Shape& shape) {
  require_one_device(name, query, other);
  if (other.dtype() != query.dtype()) refuse(name, query, other, "the dtypes differ");
  if (other.shape() != shape) {
    refuse(name, query, other, fmt::format("the second should be {}", shape_to_string(shape)));
  }
}

void require_operands(std::string_view name, const LocalTensor& query, const LocalTensor& key,
                      const LocalTensor& value) {
  if (query.dim() < 2 || key.dim() < 2 || value.dim() < 2) {
    refuse(name, query, key, "each has two dims at least");
  }
  if (!is_floating_point(query.dtype())) refuse(name, query, key, "they are no fractions");
  require_matrices(name, query, key, with_batch_of(query, key.size(-2), query.size(-1)));
  require_matrices(name, query, value, with_batch_of(query, key.size(-2), value.size(-1)));
}

template <typename A>
class AttentionForward {
 public:
  AttentionForward(const LocalTensor& query, const LocalTensor& key, const LocalTensor& value,
                   const AttentionForm& form, const Attended& result)
      : query_(query, kComputedIn<A>),
        key_(key, kComputedIn<A>),
        value_(value, kComputedIn<A>),
        output_(result.output, kComputedIn<A>),
        logsumexp_(result.logsumexp.template data_as<A>()),
        visible_(query, key, form),
        scale_(static_cast<A>(form.scale)),
        keys_(key_, kKeys),
        values_(value_, A{1}) {}

  void run() const {
    const std::int64_t blocks = (query_.rows() + kQueries - 1) / kQueries;
    parallel_for(query_.heads() * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) run_tile(i / blocks, i % blocks * kQueries);
    });
  }

 private:
  void run_tile(std::int64_t head, std::int64_t first) const {
    const std::int64_t rows = std::min(kQueries, query_.rows() - first);
    const std::int64_t columns = in_tile_lanes(value_.columns());
    const std::int64_t numbers = query_.columns();
    Scratch scratch(rows * (kKeys + columns + numbers + kTileLanes + 1) *
                    static_cast<std::int64_t>(sizeof(A)));
    A* const scores = reinterpret_cast<A*>(scratch.data());
    A* const results = scores + rows * kKeys;
    A* const total = results + rows * columns;
    A* const queries = total + rows * kTileLanes;
    A* const greatest = queries + rows * numbers;
    for (std::int64_t r = 0; r < rows; ++r) {
      query_.load(queries + r * numbers, query_.at(head, first + r), numbers);
    }
    AttentionKernels<A>::scale(queries, scale_, rows * numbers);
    std::fill_n(results, rows * columns, A{0});
    std::fill_n(greatest, rows, -std::numeric_limits<A>::infinity());
    std::fill_n(total, rows * kTileLanes, A{0});
    for (std::int64_t k = 0; k < key_.rows() && !visible_.none(first, rows, k); k += kKeys) {
      const std::int64_t keys = std::min(kKeys, key_.rows() - k);
      const ScoreTile<A> tile{scores, kKeys, rows, in_tile_lanes(keys)};
      multiply_tile(TileProduct<A>{scores, kKeys, queries, numbers, 1, keys_.at(head, k / kKeys),
                                   keys_.width(), rows, tile.columns, numbers, TileSum::fresh});
      visible_.apply(tile, head, first, k, keys);
      AttentionKernels<A>::weigh(tile, {greatest, total, results, columns, columns});
      multiply_tile(TileProduct<A>{results, columns, scores, kKeys, 1, values_.at(head, k),
                                   values_.row_step(), rows, columns, keys, TileSum::added});
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      A* const row = results + r * columns;
      logsumexp_[head * query_.rows() + first + r] =
          finish_row(row, value_.columns(), greatest[r], total + r * kTileLanes);
      output_.store(output_.at(head, first + r), row, value_.columns());
    }
  }

  HeadMatrices query_, key_, value_, output_;
  A* logsumexp_;
  Visible<A> visible_;
  A scale_;
  PackedColumns<A> keys_;
  PackedRows<A> values_;
};

template <typename A>
class AttentionBackward {
 public:
  AttentionBackward(const LocalTensor& gradient, const LocalTensor& query, const LocalTensor& key,
                    const LocalTensor& value, const Attended& forward, const AttentionForm& form,
                    const AttentionGradients& result)
      : gradient_(gradient, kComputedIn<A>),
        query_(query, kComputedIn<A>),
        key_(key, kComputedIn<A>),
        value_(value, kComputedIn<A>),
        output_(forward.output, kComputedIn<A>),
        query_gradient_(result.query, kComputedIn<A>),
        key_gradient_(result.key, kComputedIn<A>),
        value_gradient_(result.value, kComputedIn<A>),
        scale_(static_cast<A>(form.scale)),
        logsumexp_(forward.logsumexp.template data_as<const A>()),
        visible_(query, key, form),
        queries_(query_, scale_),
        gradients_(gradient_, A{1}),
        key_rows_(key_, A{1}),
        keys_(key_, kKeysBackward),
        values_(value_, kKeysBackward),
        parts_(parts_of_keys(query_.heads(), (key_.rows() + kKeysBackward - 1) / kKeysBackward)),
        dots_(empty({query_.heads(), query_.rows()}, {kComputedIn<A>})),
        sums_(empty({parts_, query_.heads(), query_.rows(), in_tile_lanes(query_.columns())},
                    {kComputedIn<A>})) {}

  void run() const {
    constexpr std::int64_t kRowsAtOnce = 64;
    const std::int64_t rows = query_.heads() * query_.rows();
    parallel_for(rows, kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) find_dot(i / query_.rows(), i % query_.rows());
    });
    parallel_for(query_.heads() * parts_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) run_part(i / parts_, i % parts_);
    });
    parallel_for(rows, kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) sum_parts(i / query_.rows(), i % query_.rows());
    });
  }

 private:
  /// Of the result and its gradient: equal to the sum of weight times slope over all keys, which
  /// the derivative of softmax subtracts. So no tile needs the others' keys.
  void find_dot(std::int64_t head, std::int64_t row) const {
    const std::int64_t columns = output_.columns();
    Scratch scratch(columns * static_cast<std::int64_t>(sizeof(A)));
    A* const result = reinterpret_cast<A*>(scratch.data());
    output_.load(result, output_.at(head, row), columns);
    dots_.template data_as<A>()[head * query_.rows() + row] =
        AttentionKernels<A>::dot(result, gradients_.at(head, row), columns);
  }

  A* sums_at(std::int64_t part, std::int64_t head, std::int64_t row) const {
    const std::int64_t columns = in_tile_lanes(query_.columns());
    return sums_.template data_as<A>() +
           ((part * query_.heads() + head) * query_.rows() + row) * columns;
  }

  void sum_parts(std::int64_t head, std::int64_t row) const {
    // In the order of the parts. Their number depends on heads and keys alone, so the bits are the
    // same with any number of threads.
    A* const first = sums_at(0, head, row);
    for (std::int64_t part = 1; part < parts_; ++part) {
      AttentionKernels<A>::add(first, sums_at(part, head, row), query_.columns());
    }
    AttentionKernels<A>::scale(first, scale_, query_.columns());
    query_gradient_.store(query_gradient_.at(head, row), first, query_.columns());
  }

  void run_part(std::int64_t head, std::int64_t part) const {
    const std::int64_t blocks = (key_.rows() + kKeysBackward - 1) / kKeysBackward;
    const std::int64_t begin = blocks * part / parts_, end = blocks * (part + 1) / parts_;
    const std::int64_t key_columns = in_tile_lanes(key_.columns());
    const std::int64_t value_columns = in_tile_lanes(value_.columns());
    Scratch scratch((2 * kQueries * kKeysBackward + kKeysBackward * (key_columns + value_columns)) *
                    static_cast<std::int64_t>(sizeof(A)));
    Tiles tiles{};
    tiles.scores = reinterpret_cast<A*>(scratch.data());
    tiles.slopes = tiles.scores + kQueries * kKeysBackward;
    tiles.of_keys = tiles.slopes + kQueries * kKeysBackward;
    tiles.of_values = tiles.of_keys + kKeysBackward * key_columns;
    tiles.sum = TileSum::fresh;
    if (begin == end) std::fill_n(sums_at(part, head, 0), query_.rows() * key_columns, A{0});
    for (std::int64_t block = begin; block < end; ++block) {
      run_block(head, part, block * kKeysBackward, tiles);
      tiles.sum = TileSum::added;
    }
  }

  /// What one thread works in.
  struct Tiles {
    A* scores;
    A* slopes;
    A* of_keys;
    A* of_values;
    TileSum sum;  ///< of the queries' gradients
  };

  void run_block(std::int64_t head, std::int64_t part, std::int64_t first_key,
                 const Tiles& tiles) const {
    const std::int64_t keys = std::min(kKeysBackward, key_.rows() - first_key);
    const std::int64_t key_columns = in_tile_lanes(key_.columns());
    const std::int64_t value_columns = in_tile_lanes(value_.columns());
    std::fill_n(tiles.of_keys, keys * key_columns, A{0});
    std::fill_n(tiles.of_values, keys * value_columns, A{0});
    for (std::int64_t first = 0; first < query_.rows(); first += kQueries) {
      const std::int64_t rows = std::min(kQueries, query_.rows() - first);
      if (!visible_.none(first, rows, first_key)) {
        run_tile(head, first, rows, first_key, keys, tiles);
        multiply_tile(TileProduct<A>{sums_at(part, head, first), key_columns, tiles.slopes,
                                     kKeysBackward, 1, key_rows_.at(head, first_key),
                                     key_rows_.row_step(), rows, key_columns, keys, tiles.sum});
      } else if (tiles.sum == TileSum::fresh) {
        std::fill_n(sums_at(part, head, first), rows * key_columns, A{0});
      }
    }
    for (std::int64_t r = 0; r < keys; ++r) {
      key_gradient_.store(key_gradient_.at(head, first_key + r), tiles.of_keys + r * key_columns,
                          key_.columns());
      value_gradient_.store(value_gradient_.at(head, first_key + r),
                            tiles.of_values + r * value_columns, value_.columns());
    }
  }

  /// Weights and slopes of some queries, and what they add to the gradients of keys and values.
  void run_tile(std::int64_t head, std::int64_t first, std::int64_t rows, std::int64_t first_key,
                std::int64_t keys, const Tiles& tiles) const {
    const std::int64_t block = first_key / kKeysBackward;
    const std::int64_t place = head * query_.rows() + first;
    const ScoreTile<A> tile{tiles.scores, kKeysBackward, rows, in_tile_lanes(keys)};
    const A* const queries = queries_.at(head, first);
    const A* const gradients = gradients_.at(head, first);
    multiply_tile(TileProduct<A>{tiles.scores, kKeysBackward, queries, queries_.row_step(), 1,
                                 keys_.at(head, block), keys_.width(), rows, tile.columns,
                                 query_.columns(), TileSum::fresh});
    visible_.apply(tile, head, first, first_key, keys);
    multiply_tile(TileProduct<A>{tiles.slopes, kKeysBackward, gradients, gradients_.row_step(), 1,
                                 values_.at(head, block), values_.width(), rows, tile.columns,
                                 value_.columns(), TileSum::fresh});
    AttentionKernels<A>::weigh_again(tile, tiles.slopes, logsumexp_ + place,
                                     dots_.template data_as<const A>() + place);
    const std::int64_t key_columns = in_tile_lanes(key_.columns());
    const std::int64_t value_columns = in_tile_lanes(value_.columns());
    multiply_tile(TileProduct<A>{tiles.of_values, value_columns, tiles.scores, 1, kKeysBackward,
                                 gradients, gradients_.row_step(), keys, value_columns, rows,
                                 TileSum::added});
    multiply_tile(TileProduct<A>{tiles.of_keys, key_columns, tiles.slopes, 1, kKeysBackward,
                                 queries, queries_.row_step(), keys, key_columns, rows,
                                 TileSum::added});
  }

  HeadMatrices gradient_, query_, key_, value_, output_;
  HeadMatrices query_gradient_, key_gradient_, value_gradient_;
  A scale_;
  const A* logsumexp_;
  Visible<A> visible_;
  PackedRows<A> queries_, gradients_, key_rows_;
  PackedColumns<A> keys_, values_;
  std::int64_t parts_;
  LocalTensor dots_;  ///< of each query's result and its gradient
  LocalTensor sums_;  ///< of each part's gradients of the queries
};

/// Few queries take longer to be packed, with their keys, than to be multiplied.
bool suits_bf16_tiles(const LocalTensor& query, const LocalTensor& key) {
  constexpr std::int64_t kFewQueries = 16;
  return query.dtype() == DType::bf16 && has_bf16_vectors() && query.size(-2) > kFewQueries &&
         query.size(-2) * key.size(-2) > kBf16Inner * kBf16Inner;
}

}  // namespace

Attended attention(const LocalTensor& query, const LocalTensor& key, const LocalTensor& value,
                   const AttentionForm& form) {
  require_operands("attention", query, key, value);
  if (!query.device().is_cpu()) return device_attention(query, key, value, form);
  const bool is_double = query.dtype() == DType::f64;
  const Attended result{
      empty(with_batch_of(query, query.size(-2), value.size(-1)), {query.dtype()}),
      empty(Shape(query.shape().begin(), query.shape().end() - 1),
            {is_double ? DType::f64 : DType::f32})};
  if (result.logsumexp.numel() == 0) return result;
  if (suits_bf16_tiles(query, key)) {
    run_bf16_attention(query, key, value, form, result);
  } else if (is_one_tile_of_queries(query)) {
    run_few_attention(query, key, value, form, result);
  } else if (is_double) {
    AttentionForward<double>(query, key, value, form, result).run();
  } else {
    AttentionForward<float>(query, key, value, form, result).run();
  }
  return result;
}

AttentionGradients attention_backward(const LocalTensor& gradient, const LocalTensor& query,
                                      const LocalTensor& key, const LocalTensor& value,
                                      const Attended& forward, const AttentionForm& form) {
  require_operands("attention_backward", query, key, value);
  const Shape output = with_batch_of(query, query.size(-2), value.size(-1));
  require_matrices("attention_backward", query, gradient, output);
  require_matrices("attention_backward", query, forward.output, output);
  if (!query.device().is_cpu())
    return device_attention_backward(gradient, query, key, value, forward, form);
  const AttentionGradients result{empty(query.shape(), {query.dtype()}),
                                  empty(key.shape(), {query.dtype()}),
                                  empty(value.shape(), {query.dtype()})};
  const Attended dense{forward.output, forward.logsumexp.contiguous()};
  if (suits_bf16_tiles(query, key)) {
    run_bf16_attention_backward(gradient, query, key, value, dense, form, result);
  } else if (is_one_tile_of_gradients(query, key)) {
    run_few_attention_backward(gradient, query, key, value, dense, form, result);
  } else if (query.dtype() == DType::f64) {
    AttentionBackward<double>(gradient, query, key, value, dense, form, result).run();
  } else {
    AttentionBackward<float>(gradient, query, key, value, dense, form, result).run();
  }
  return result;
}

}  // namespace dtrun::tensors
