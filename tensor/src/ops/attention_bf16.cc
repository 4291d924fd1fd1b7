#include "ops/attention_bf16.h"

#include <algorithm>
#include <cstring>

#include "kernels/attention_bf16_kernel.h"
#include "ops/attention_bf16_operand.h"
#include "ops/attention_scores.h"

namespace dtrun::tensors {
namespace {

class Bf16Attention {
 public:
  Bf16Attention(const LocalTensor& query, const LocalTensor& key, const LocalTensor& value,
                const AttentionForm& form, const Attended& result)
      : query_(query, DType::bf16),
        key_(key, DType::bf16),
        value_(value, DType::bf16),
        output_(result.output, DType::f32),
        logsumexp_(result.logsumexp.data_as<float>()),
        scale_(static_cast<float>(form.scale)),
        scales_late_(scale_ > 0 && !form.mask.defined()),
        visible_(query, key, form),
        keys_(key_, PairedBlocks::Over::columns),
        values_(value_, PairedBlocks::Over::rows) {}

  void run() const {
    const std::int64_t blocks = (query_.rows() + kQueries - 1) / kQueries;
    parallel_for(query_.heads() * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) run_tile(i / blocks, i % blocks * kQueries);
    });
  }

 private:
  /// What a thread works in. Rows beyond the last query are computed, too.
  struct Room {
    float* scores;
    float* results;
    float* total;
    float* greatest;
    BFloat16* weights;
    BFloat16* queries;
  };

  void run_tile(std::int64_t head, std::int64_t first) const {
    const std::int64_t rows = std::min(kQueries, query_.rows() - first);
    const std::int64_t columns = in_tile_lanes(value_.columns());
    const std::int64_t numbers = in_bf16_inner(query_.columns());
    Scratch scratch(kQueries * (4 * (kKeys + columns + kTileLanes + 1) + 2 * (kKeys + numbers)));
    Room room{};
    room.scores = reinterpret_cast<float*>(scratch.data());
    room.results = room.scores + kQueries * kKeys;
    room.total = room.results + kQueries * columns;
    room.greatest = room.total + kQueries * kTileLanes;
    room.weights = reinterpret_cast<BFloat16*>(room.greatest + kQueries);
    room.queries = room.weights + kQueries * kKeys;
    load_bf16_rows(query_, query_.at(head, first), room.queries, rows, numbers);
    const std::int64_t tile_rows = in_tile_lanes(rows);
    clear_bf16(room.queries + rows * numbers, room.queries + tile_rows * numbers);
    clear_bf16(room.weights + rows * kKeys, room.weights + tile_rows * kKeys);
    std::fill_n(room.results, tile_rows * columns, 0.0f);
    std::fill_n(room.greatest, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(room.total, rows * kTileLanes, 0.0f);
    for (std::int64_t k = 0; k < key_.rows() && !visible_.none(first, rows, k); k += kKeys) {
      add_keys(head, first, rows, k, room);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      float* const row = room.results + r * columns;
      logsumexp_[head * query_.rows() + first + r] = finish_row(
          row, value_.columns(), late_scale() * room.greatest[r], room.total + r * kTileLanes);
      output_.store(output_.at(head, first + r), row, value_.columns());
    }
  }

  void add_keys(std::int64_t head, std::int64_t first, std::int64_t rows, std::int64_t first_key,
                const Room& room) const {
    const std::int64_t keys = std::min(kKeys, key_.rows() - first_key);
    const std::int64_t columns = in_tile_lanes(value_.columns());
    const std::int64_t numbers = in_bf16_inner(query_.columns());
    const std::int64_t tile_rows = in_tile_lanes(rows);
    const ScoreTile<float> tile{room.scores, kKeys, rows, in_bf16_inner(keys)};
    multiply_bf16({room.scores, kKeys, room.queries, numbers, keys_.at(head, first_key / kKeys),
                   keys_.row_step(), tile_rows, tile.columns, numbers, TileSum::fresh});
    if (!scales_late_) AttentionKernels<float>::scale(room.scores, scale_, rows * kKeys);
    visible_.apply(tile, head, first, first_key, keys);
    weigh_in_bf16(tile, late_scale(), {room.greatest, room.total, room.results, columns, columns},
                  room.weights, kKeys);
    multiply_bf16({room.results, columns, room.weights, kKeys, values_.at(head, first_key / kKeys),
                   values_.row_step(), tile_rows, columns, tile.columns, TileSum::added});
  }

  float late_scale() const { return scales_late_ ? scale_ : 1; }

  HeadMatrices query_, key_, value_, output_;
  float* logsumexp_;
  float scale_;
  bool scales_late_;  ///< in the pass that weighs: what a mask adds is not scaled
  Visible<float> visible_;
  PairedBlocks keys_, values_;
};

}  // namespace

void run_bf16_attention(const LocalTensor& query, const LocalTensor& key, const LocalTensor& value,
                        const AttentionForm& form, const Attended& result) {
  Bf16Attention(query, key, value, form, result).run();
}

}  // namespace dtrun::tensors
