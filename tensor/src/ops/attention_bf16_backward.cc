#include <algorithm>

#include "kernels/transpose_kernel.h"
#include "ops/attention_bf16.h"
#include "ops/attention_bf16_operand.h"
#include "ops/attention_scores.h"

namespace dtrun::tensors {
namespace {

class Bf16AttentionBackward {
 public:
  Bf16AttentionBackward(const LocalTensor& gradient, const LocalTensor& query,
                        const LocalTensor& key, const LocalTensor& value, const Attended& forward,
                        const AttentionForm& form, const AttentionGradients& result)
      : gradient_(gradient, DType::bf16),
        gradient_numbers_(gradient, DType::f32),
        query_(query, DType::bf16),
        key_(key, DType::bf16),
        value_(value, DType::bf16),
        output_(forward.output, DType::f32),
        query_gradient_(result.query, DType::f32),
        key_gradient_(result.key, DType::f32),
        value_gradient_(result.value, DType::f32),
        scale_(static_cast<float>(form.scale)),
        logsumexp_(forward.logsumexp.data_as<const float>()),
        visible_(query, key, form),
        queries_(query_),
        gradients_(gradient_),
        keys_(key_, PairedBlocks::Over::columns),
        key_rows_(key_, PairedBlocks::Over::rows),
        values_(value_, PairedBlocks::Over::columns),
        query_blocks_((query_.rows() + kQueries - 1) / kQueries),
        key_blocks_((key_.rows() + kKeys - 1) / kKeys),
        parts_(parts_of_keys(query_.heads(), key_blocks_)),
        dots_(empty({query_.heads(), query_.rows()}, {DType::f32})),
        sums_(empty({parts_, query_.heads(), query_blocks_ * kQueries, key_columns()},
                    {DType::f32})) {}

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
  std::int64_t key_columns() const { return in_tile_lanes(key_.columns()); }
  std::int64_t value_columns() const { return in_tile_lanes(value_.columns()); }

  void find_dot(std::int64_t head, std::int64_t row) const {
    const std::int64_t columns = output_.columns();
    Scratch scratch(2 * columns * static_cast<std::int64_t>(sizeof(float)));
    float* const result = reinterpret_cast<float*>(scratch.data());
    output_.load(result, output_.at(head, row), columns);
    gradient_numbers_.load(result + columns, gradient_numbers_.at(head, row), columns);
    dots_.data_as<float>()[head * query_.rows() + row] =
        AttentionKernels<float>::dot(result, result + columns, columns);
  }

  float* sums_at(std::int64_t part, std::int64_t head, std::int64_t row) const {
    return sums_.data_as<float>() +
           ((part * query_.heads() + head) * query_blocks_ * kQueries + row) * key_columns();
  }

  void sum_parts(std::int64_t head, std::int64_t row) const {
    float* const first = sums_at(0, head, row);
    for (std::int64_t part = 1; part < parts_; ++part) {
      AttentionKernels<float>::add(first, sums_at(part, head, row), query_.columns());
    }
    AttentionKernels<float>::scale(first, scale_, query_.columns());
    query_gradient_.store(query_gradient_.at(head, row), first, query_.columns());
  }

  /// What a thread works in: of some queries and keys, the latter's gradients turned.
  struct Room {
    float* scores;
    float* slopes;
    float* of_keys;
    float* of_values;
    BFloat16* weight_pairs;
    BFloat16* slope_pairs;
    BFloat16* slope_rows;
    TileSum sum;  ///< of the queries' gradients
  };

  void run_part(std::int64_t head, std::int64_t part) const {
    const std::int64_t begin = key_blocks_ * part / parts_, end = key_blocks_ * (part + 1) / parts_;
    constexpr std::int64_t kTile = kQueries * kKeys;
    const std::int64_t numbers = std::max(key_columns(), value_columns());
    Scratch scratch(4 * (2 * kTile + kKeys * (key_columns() + value_columns() + numbers)) +
                    2 * 3 * kTile);
    Room room{};
    room.scores = reinterpret_cast<float*>(scratch.data());
    room.slopes = room.scores + kTile;
    room.of_keys = room.slopes + kTile;
    room.of_values = room.of_keys + kKeys * key_columns();
    float* const turned = room.of_values + kKeys * value_columns();
    room.weight_pairs = reinterpret_cast<BFloat16*>(turned + kKeys * numbers);
    room.slope_pairs = room.weight_pairs + kTile;
    room.slope_rows = room.slope_pairs + kTile;
    clear_bf16(room.slope_rows, room.slope_rows + kTile);
    room.sum = TileSum::fresh;
    if (begin == end) {
      std::fill_n(sums_at(part, head, 0), query_blocks_ * kQueries * key_columns(), 0.0f);
    }
    for (std::int64_t block = begin; block < end; ++block) {
      run_block(head, part, block, room);
      store_turned(key_gradient_, head, block, room.of_keys, turned, scale_);
      store_turned(value_gradient_, head, block, room.of_values, turned, 1.0f);
      room.sum = TileSum::added;
    }
  }

  /// @param sums [columns, kKeys]
  static void store_turned(const HeadMatrices& target, std::int64_t head, std::int64_t block,
                           const float* sums, float* turned, float scale) {
    const std::int64_t columns = in_tile_lanes(target.columns());
    const std::int64_t keys = std::min(kKeys, target.rows() - block * kKeys);
    transpose_rows(turned, columns, sums, kKeys, columns, kKeys, columns);
    if (scale != 1.0f) AttentionKernels<float>::scale(turned, scale, kKeys * columns);
    for (std::int64_t r = 0; r < keys; ++r) {
      target.store(target.at(head, block * kKeys + r), turned + r * columns, target.columns());
    }
  }

  void run_block(std::int64_t head, std::int64_t part, std::int64_t block, const Room& room) const {
    const std::int64_t keys = in_bf16_inner(std::min(kKeys, key_.rows() - block * kKeys));
    std::fill_n(room.of_keys, kKeys * key_columns(), 0.0f);
    std::fill_n(room.of_values, kKeys * value_columns(), 0.0f);
    for (std::int64_t first = 0; first < query_.rows(); first += kQueries) {
      const std::int64_t rows = std::min(kQueries, query_.rows() - first);
      float* const sums = sums_at(part, head, first);
      if (!visible_.none(first, rows, block * kKeys)) {
        run_tile(head, first, rows, block, room);
        multiply_bf16({sums, key_columns(), room.slope_rows, kKeys, key_rows_.at(head, block),
                       key_rows_.row_step(), in_tile_lanes(rows), key_columns(), keys, room.sum});
      } else if (room.sum == TileSum::fresh) {
        std::fill_n(sums, rows * key_columns(), 0.0f);
      }
    }
  }

  /// Weights and slopes of some queries, and what they add to the gradients of keys and values.
  void run_tile(std::int64_t head, std::int64_t first, std::int64_t rows, std::int64_t block,
                const Room& room) const {
    const std::int64_t query_block = first / kQueries, tile_rows = in_tile_lanes(rows);
    const std::int64_t keys = std::min(kKeys, key_.rows() - block * kKeys);
    const ScoreTile<float> tile{room.scores, kKeys, rows, in_bf16_inner(keys)};
    multiply_bf16({room.scores, kKeys, queries_.rows(head, query_block), queries_.width(),
                   keys_.at(head, block), keys_.row_step(), tile_rows, tile.columns,
                   queries_.width(), TileSum::fresh});
    multiply_bf16({room.slopes, kKeys, gradients_.rows(head, query_block), gradients_.width(),
                   values_.at(head, block), values_.row_step(), tile_rows, tile.columns,
                   gradients_.width(), TileSum::fresh});
    AttentionKernels<float>::scale(room.scores, scale_, rows * kKeys);
    visible_.apply(tile, head, first, block * kKeys, keys);
    const std::int64_t place = head * query_.rows() + first;
    AttentionKernels<float>::weigh_again(tile, room.slopes, logsumexp_ + place,
                                         dots_.data_as<const float>() + place);
    round_tile(tile, room);
    const std::int64_t inner = in_bf16_inner(rows);
    multiply_bf16({room.of_values, kKeys, gradients_.turned(head, query_block), kQueries,
                   room.weight_pairs, 2 * kKeys, value_columns(), tile.columns, inner,
                   TileSum::added});
    multiply_bf16({room.of_keys, kKeys, queries_.turned(head, query_block), kQueries,
                   room.slope_pairs, 2 * kKeys, key_columns(), tile.columns, inner,
                   TileSum::added});
  }

  static void round_tile(const ScoreTile<float>& tile, const Room& room) {
    static const RowKernel round = copy_kernel(DType::bf16, DType::f32);
    char* const operands[] = {reinterpret_cast<char*>(room.slope_rows),
                              reinterpret_cast<char*>(room.slopes)};
    const std::int64_t steps[] = {sizeof(BFloat16), sizeof(float)};
    round(operands, steps, tile.rows * kKeys);
    // What is summed over queries goes on to a whole number of pairs.
    const std::int64_t end = in_bf16_inner(tile.rows);
    std::fill(tile.data + tile.rows * kKeys, tile.data + end * kKeys, 0.0f);
    std::fill(room.slopes + tile.rows * kKeys, room.slopes + end * kKeys, 0.0f);
    for (std::int64_t r = 0; r < end; r += 2) {
      const std::int64_t upper = r * kKeys;
      pair_rows(room.weight_pairs + upper, tile.data + upper, tile.data + upper + kKeys,
                tile.columns);
      pair_rows(room.slope_pairs + upper, room.slopes + upper, room.slopes + upper + kKeys,
                tile.columns);
    }
  }

  HeadMatrices gradient_, gradient_numbers_, query_, key_, value_, output_;
  HeadMatrices query_gradient_, key_gradient_, value_gradient_;
  float scale_;
  const float* logsumexp_;
  Visible<float> visible_;
  QueryBlocks queries_, gradients_;
  PairedBlocks keys_, key_rows_, values_;
  std::int64_t query_blocks_;
  std::int64_t key_blocks_;
  std::int64_t parts_;
  LocalTensor dots_;
  LocalTensor sums_;
};

}  // namespace

void run_bf16_attention_backward(const LocalTensor& gradient, const LocalTensor& query,
                                 const LocalTensor& key, const LocalTensor& value,
                                 const Attended& forward, const AttentionForm& form,
                                 const AttentionGradients& result) {
  Bf16AttentionBackward(gradient, query, key, value, forward, form, result).run();
}

}  // namespace dtrun::tensors
