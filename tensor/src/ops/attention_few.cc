#include "ops/attention_few.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/one_query_kernel.h"
#include "kernels/transpose_kernel.h"
#include "ops/attention_operand.h"
#include "ops/attention_scores.h"

namespace dtrun::tensors {
namespace {

/// Keys that are turned at a time: their numbers stay in the first cache.
constexpr std::int64_t kTurnedKeys = 64;

/// Tiles that one chunk computes, so that it is worth another thread's waking: some 2 us.
std::int64_t tiles_of_chunk(std::int64_t products_of_tile) {
  constexpr std::int64_t kProducts = 1 << 17, kOwnCost = 1 << 13;
  return std::max<std::int64_t>(1, kProducts / (products_of_tile + kOwnCost));
}

/// Whether rows are as the kernels for one query take them.
bool lie_in_groups(const HeadMatrices& in) {
  return in.dtype() == DType::bf16 && in.column_step() == 1 && in.columns() > 0 &&
         in.columns() % kOneQueryGroup == 0;
}
RowsOfBf16 rows_of_bf16(const HeadMatrices& in, std::int64_t head, std::int64_t first,
                        std::int64_t count) {
  return {reinterpret_cast<const BFloat16*>(in.at(head, first)), in.row_step(), count,
          in.columns()};
}

/// result[columns, width]: rows as columns, filled up with 0.
template <typename A>
void turn(const RowsOfNumbers<A>& in, std::int64_t rows, std::int64_t columns, A* result,
          std::int64_t width) {
  transpose_rows(result, width, in.data, in.step, rows, columns, width);
}

template <typename A>
class FewForward {
 public:
  FewForward(const LocalTensor& query, const LocalTensor& key, const LocalTensor& value,
             const AttentionForm& form, const Attended& result)
      : query_(query, kComputedIn<A>),
        key_(key, kComputedIn<A>),
        value_(value, kComputedIn<A>),
        output_(result.output, kComputedIn<A>),
        logsumexp_(result.logsumexp.template data_as<A>()),
        visible_(query, key, form),
        scale_(static_cast<A>(form.scale)),
        heads_(heads_of_tile()),
        keys_(std::min(kKeys, in_tile_lanes(key_.rows()))),
        is_as_it_lies_(std::is_same_v<A, float> && query_.rows() == 1 && lie_in_groups(key_) &&
                       lie_in_groups(value_)),
        turned_keys_(is_as_it_lies_ ? 0 : std::min(kTurnedKeys, keys_)),
        columns_(in_tile_lanes(value_.columns())) {}

  void run() const {
    const std::int64_t rows = heads_ * query_.rows();
    // Of one query the keys cost more than the products: they are turned.
    const std::int64_t products =
        std::max<std::int64_t>(rows, 4) * key_.rows() * (query_.columns() + value_.columns());
    parallel_for(query_.heads() / heads_, tiles_of_chunk(products),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) run_tile(i * heads_);
                 });
  }

 private:
  /// Heads that share their keys and values are one tile: these are turned once for all.
  std::int64_t heads_of_tile() const {
    const std::int64_t sharing = std::gcd(key_.sharing(), value_.sharing());
    std::int64_t heads = std::clamp<std::int64_t>(kQueries / query_.rows(), 1, sharing);
    while (sharing % heads != 0) --heads;
    return heads;
  }

  struct Room {
    A* scores;
    A* results;
    A* total;
    A* queries;
    A* greatest;
    A* turned;
    A* loaded;
  };

  void run_tile(std::int64_t head) const {
    const std::int64_t rows = heads_ * query_.rows(), numbers = query_.columns();
    const std::int64_t loaded =
        is_as_it_lies_ ? 0 : std::max(turned_keys_ * numbers, keys_ * columns_);
    Scratch scratch((rows * (keys_ + columns_ + numbers + kTileLanes + 1) + turned_keys_ * numbers +
                     loaded + kTileLanes) *
                    static_cast<std::int64_t>(sizeof(A)));
    Room room{};
    room.scores = reinterpret_cast<A*>(scratch.data());
    room.results = room.scores + rows * keys_;
    room.total = room.results + rows * columns_;
    room.turned = room.total + rows * kTileLanes;
    room.loaded = room.turned + turned_keys_ * numbers;
    room.queries = room.loaded + loaded;
    room.greatest = room.queries + rows * numbers;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t own = head + r / query_.rows();
      query_.load(room.queries + r * numbers, query_.at(own, r % query_.rows()), numbers);
    }
    AttentionKernels<A>::scale(room.queries, scale_, rows * numbers);
    std::fill_n(room.results, rows * columns_, A{0});
    std::fill_n(room.greatest, rows, -std::numeric_limits<A>::infinity());
    std::fill_n(room.total, rows * kTileLanes, A{0});
    for (std::int64_t k = 0; k < key_.rows() && !visible_.none(0, query_.rows(), k); k += kKeys) {
      add_keys(head, k, room);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t own = head + r / query_.rows(), row = r % query_.rows();
      A* const result = room.results + r * columns_;
      logsumexp_[head * query_.rows() + r] =
          finish_row(result, value_.columns(), room.greatest[r], room.total + r * kTileLanes);
      output_.store(output_.at(own, row), result, value_.columns());
    }
  }

  void add_keys(std::int64_t head, std::int64_t first, const Room& room) const {
    const std::int64_t rows = heads_ * query_.rows();
    const std::int64_t keys = std::min(kKeys, key_.rows() - first);
    find_scores(head, first, keys, room);
    for (std::int64_t h = 0; h < heads_; ++h) {
      const ScoreTile<A> own{room.scores + h * query_.rows() * keys_, keys_, query_.rows(),
                             in_tile_lanes(keys)};
      visible_.apply(own, head + h, 0, first, keys);
    }
    AttentionKernels<A>::weigh({room.scores, keys_, rows, in_tile_lanes(keys)},
                               {room.greatest, room.total, room.results, columns_, columns_});
    add_values(head, first, keys, room);
  }

  void find_scores(std::int64_t head, std::int64_t first, std::int64_t keys,
                   const Room& room) const {
    const std::int64_t rows = heads_ * query_.rows(), numbers = query_.columns();
    if constexpr (std::is_same_v<A, float>) {
      if (is_as_it_lies_) {
        for (std::int64_t r = 0; r < rows; ++r) {
          score_keys(room.scores + r * keys_, room.queries + r * numbers,
                     rows_of_bf16(key_, head, first, keys));
        }
        return;
      }
    }
    for (std::int64_t k = 0; k < keys; k += kTurnedKeys) {
      const std::int64_t some = std::min(kTurnedKeys, keys - k), width = in_tile_lanes(some);
      turn(rows_of_numbers(key_, key_.at(head, first + k), some, numbers, room.loaded), some,
           numbers, room.turned, width);
      multiply_tile(TileProduct<A>{room.scores + k, keys_, room.queries, numbers, 1, room.turned,
                                   width, rows, width, numbers, TileSum::fresh});
    }
  }

  void add_values(std::int64_t head, std::int64_t first, std::int64_t keys,
                  const Room& room) const {
    const std::int64_t rows = heads_ * query_.rows();
    if constexpr (std::is_same_v<A, float>) {
      if (is_as_it_lies_) {
        for (std::int64_t r = 0; r < rows; ++r) {
          add_weighted(room.results + r * columns_, room.scores + r * keys_,
                       rows_of_bf16(value_, head, first, keys));
        }
        return;
      }
    }
    const RowsOfNumbers<A> values =
        rows_of_numbers(value_, value_.at(head, first), keys, columns_, room.loaded);
    multiply_tile(TileProduct<A>{room.results, columns_, room.scores, keys_, 1, values.data,
                                 values.step, rows, columns_, keys, TileSum::added});
  }

  HeadMatrices query_, key_, value_, output_;
  A* logsumexp_;
  Visible<A> visible_;
  A scale_;
  std::int64_t heads_;        ///< of a tile
  std::int64_t keys_;         ///< from a row of scores to the next
  bool is_as_it_lies_;        ///< keys and values meet the one query where they lie
  std::int64_t turned_keys_;  ///< at a time
  std::int64_t columns_;      ///< of values, in whole groups of lanes
};

/// Of heads whose queries and keys are one tile.
template <typename A>
class FewBackward {
 public:
  FewBackward(const LocalTensor& gradient, const LocalTensor& query, const LocalTensor& key,
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
        keys_(in_tile_lanes(key_.rows())),
        key_columns_(in_tile_lanes(key_.columns())),
        value_columns_(in_tile_lanes(value_.columns())) {}

  void run() const {
    const std::int64_t products =
        query_.rows() * key_.rows() * (3 * query_.columns() + 2 * value_.columns());
    parallel_for(query_.heads(), tiles_of_chunk(products),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t head = begin; head < end; ++head) run_head(head);
                 });
  }

 private:
  struct Room {
    A* scores;
    A* slopes;
    A* dots;
    A* queries;  ///< scaled
    A* results;  ///< of one of the products
    A* turned;
    A* loaded_keys;
    A* loaded_values;
    A* loaded_gradients;
  };

  void run_head(std::int64_t head) const {
    const std::int64_t rows = query_.rows(), longest = std::max(rows, key_.rows());
    const std::int64_t widest = std::max(key_columns_, value_columns_);
    Scratch scratch((rows * (2 * keys_ + 1 + key_columns_ + value_columns_) + longest * widest +
                     keys_ * (widest + key_columns_ + value_columns_)) *
                    static_cast<std::int64_t>(sizeof(A)));
    Room room{};
    room.scores = reinterpret_cast<A*>(scratch.data());
    room.slopes = room.scores + rows * keys_;
    room.turned = room.slopes + rows * keys_;
    room.queries = room.turned + keys_ * widest;
    room.results = room.queries + rows * key_columns_;
    room.loaded_keys = room.results + longest * widest;
    room.loaded_values = room.loaded_keys + keys_ * key_columns_;
    room.loaded_gradients = room.loaded_values + keys_ * value_columns_;
    room.dots = room.loaded_gradients + rows * value_columns_;
    if (visible_.none(0, rows, 0)) {
      std::fill_n(room.results, longest * widest, A{0});
      store(query_gradient_, head, room.results, key_columns_);
      store(key_gradient_, head, room.results, key_columns_);
      store(value_gradient_, head, room.results, value_columns_);
    } else {
      run_tile(head, room);
    }
  }

  void run_tile(std::int64_t head, const Room& room) const {
    const std::int64_t rows = query_.rows(), keys = key_.rows();
    for (std::int64_t r = 0; r < rows; ++r) {
      A* const row = room.queries + r * key_columns_;
      query_.load(row, query_.at(head, r), query_.columns());
      AttentionKernels<A>::scale(row, scale_, query_.columns());
      std::fill(row + query_.columns(), row + key_columns_, A{0});
    }
    const RowsOfNumbers<A> gradients = rows_of_numbers(gradient_, gradient_.at(head, 0), rows,
                                                       value_columns_, room.loaded_gradients);
    for (std::int64_t r = 0; r < rows; ++r) {
      output_.load(room.results, output_.at(head, r), output_.columns());
      room.dots[r] = AttentionKernels<A>::dot(room.results, gradients.data + r * gradients.step,
                                              output_.columns());
    }
    const ScoreTile<A> tile{room.scores, keys_, rows, keys_};
    const RowsOfNumbers<A> key_rows =
        rows_of_numbers(key_, key_.at(head, 0), keys, key_columns_, room.loaded_keys);
    turn(key_rows, keys, key_.columns(), room.turned, keys_);
    multiply_tile(TileProduct<A>{room.scores, keys_, room.queries, key_columns_, 1, room.turned,
                                 keys_, rows, keys_, query_.columns(), TileSum::fresh});
    visible_.apply(tile, head, 0, 0, keys);
    turn(rows_of_numbers(value_, value_.at(head, 0), keys, value_columns_, room.loaded_values),
         keys, value_.columns(), room.turned, keys_);
    multiply_tile(TileProduct<A>{room.slopes, keys_, gradients.data, gradients.step, 1, room.turned,
                                 keys_, rows, keys_, value_.columns(), TileSum::fresh});
    AttentionKernels<A>::weigh_again(tile, room.slopes, logsumexp_ + head * rows, room.dots);
    multiply_tile(TileProduct<A>{room.results, value_columns_, room.scores, 1, keys_,
                                 gradients.data, gradients.step, keys, value_columns_, rows,
                                 TileSum::fresh});
    store(value_gradient_, head, room.results, value_columns_);
    multiply_tile(TileProduct<A>{room.results, key_columns_, room.slopes, 1, keys_, room.queries,
                                 key_columns_, keys, key_columns_, rows, TileSum::fresh});
    store(key_gradient_, head, room.results, key_columns_);
    multiply_tile(TileProduct<A>{room.results, key_columns_, room.slopes, keys_, 1, key_rows.data,
                                 key_rows.step, rows, key_columns_, keys, TileSum::fresh});
    AttentionKernels<A>::scale(room.results, scale_, rows * key_columns_);
    store(query_gradient_, head, room.results, key_columns_);
  }

  static void store(const HeadMatrices& target, std::int64_t head, A* rows, std::int64_t row) {
    for (std::int64_t r = 0; r < target.rows(); ++r) {
      target.store(target.at(head, r), rows + r * row, target.columns());
    }
  }

  HeadMatrices gradient_, query_, key_, value_, output_;
  HeadMatrices query_gradient_, key_gradient_, value_gradient_;
  A scale_;
  const A* logsumexp_;
  Visible<A> visible_;
  std::int64_t keys_;  ///< in whole groups of lanes, as the columns are
  std::int64_t key_columns_;
  std::int64_t value_columns_;
};

}  // namespace

bool is_one_tile_of_queries(const LocalTensor& query) {
  return query.size(-2) <= kQueries;
}

bool is_one_tile_of_gradients(const LocalTensor& query, const LocalTensor& key) {
  return query.size(-2) <= kQueries && key.size(-2) > 0 && key.size(-2) <= kKeysBackward;
}

void run_few_attention(const LocalTensor& query, const LocalTensor& key, const LocalTensor& value,
                       const AttentionForm& form, const Attended& result) {
  if (query.dtype() == DType::f64) return FewForward<double>(query, key, value, form, result).run();
  FewForward<float>(query, key, value, form, result).run();
}

void run_few_attention_backward(const LocalTensor& gradient, const LocalTensor& query,
                                const LocalTensor& key, const LocalTensor& value,
                                const Attended& forward, const AttentionForm& form,
                                const AttentionGradients& result) {
  if (query.dtype() == DType::f64) {
    return FewBackward<double>(gradient, query, key, value, forward, form, result).run();
  }
  FewBackward<float>(gradient, query, key, value, forward, form, result).run();
}

}  // namespace dtrun::tensors
