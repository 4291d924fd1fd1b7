// Softmax and cross entropy of rows, and their gradients.
#include <cmath>

#include "cuda/row_body.h"
#include "cuda/rows.h"

namespace dtrun::tensors::cuda {
namespace {

/// found[0] = the greatest element, found[1] = the sum of what e to the others' distance is
template <typename Rows, typename A>
DTRUN_BOTH void fold_exponentials(const Rows& rows, const Team<RowSpace<A>>& team,
                                  std::int64_t item, int operand) {
  using Starts = typename Rows::Starts;
  fold_rows<Greatest>(
      rows, team, item, 0,
      [&](const Starts& starts, std::int64_t i, A, A) { return rows.load(operand, starts, i); },
      AsItIs{});
  fold_rows<Add>(
      rows, team, item, 1,
      [&](const Starts& starts, std::int64_t i, A most, A) {
        return std::exp(rows.load(operand, starts, i) - most);
      },
      AsItIs{});
}

template <typename T>
struct SoftmaxRows {
  using A = ComputeType<T>;
  using Shared = RowSpace<A>;
  using Starts = StridedLayout<2>::Offsets;
  RowOperands<T, 2> rows;
  SoftmaxForm form;

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    fold_exponentials(rows, team, item, 1);
    store_rows(rows, team, item,
               [&](const Starts& starts, std::int64_t i, const A* found, std::int64_t) {
                 const A way = rows.load(1, starts, i) - found[0];
                 return form == SoftmaxForm::plain ? std::exp(way) * (1 / found[1])
                                                   : way - std::log(found[1]);
               });
  }
};

/// Operands: result, grad, output.
template <typename T>
struct SoftmaxRowsBackward {
  using A = ComputeType<T>;
  using Shared = RowSpace<A>;
  using Starts = StridedLayout<3>::Offsets;
  RowOperands<T, 3> rows;
  SoftmaxForm form;

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    fold_rows<Add>(
        rows, team, item, 0,
        [&](const Starts& starts, std::int64_t i, A, A) {
          const A grad = rows.load(1, starts, i);
          return form == SoftmaxForm::plain ? grad * rows.load(2, starts, i) : grad;
        },
        AsItIs{});
    store_rows(rows, team, item,
               [&](const Starts& starts, std::int64_t i, const A* found, std::int64_t) {
                 const A grad = rows.load(1, starts, i);
                 const A output = rows.load(2, starts, i);
                 return form == SoftmaxForm::plain ? (grad - found[0]) * output
                                                   : grad - std::exp(output) * found[0];
               });
  }
};

/// The only operand are the scores.
template <typename T>
struct CrossEntropyLosses {
  using A = ComputeType<T>;
  using Shared = RowSpace<A>;
  RowOperands<T, 1> rows;
  A* losses;
  A* logsumexps;
  const std::int64_t* chosen;
  std::int64_t ignored;

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    fold_exponentials(rows, team, item, 0);
    for_each_row_once(rows, team, item, [&](std::int64_t row, A most, A sum) {
      // An infinite score has no share: nan.
      const A logsumexp = std::isinf(most) ? most - most : std::log(sum) + most;
      logsumexps[row] = logsumexp;
      const std::int64_t right = chosen[row];
      losses[row] = right == ignored
                        ? A{0}
                        : logsumexp - rows.load(0, rows.layout.others.offsets(row), right);
    });
  }
};

/// Operands: result, scores. No row needs another number than it is given.
template <typename T>
struct CrossEntropyGradients {
  using A = ComputeType<T>;
  using Shared = RowSpace<A>;
  using Starts = StridedLayout<2>::Offsets;
  RowOperands<T, 2> rows;
  const A* scales;
  const A* logsumexps;
  const std::int64_t* chosen;
  std::int64_t ignored, first_class;

  DTRUN_BOTH void operator()(const Team<Shared>& team, std::int64_t item) const {
    store_rows(rows, team, item,
               [&](const Starts& starts, std::int64_t i, const A*, std::int64_t row) {
                 if (chosen[row] == ignored) return A{0};
                 const A score = rows.load(1, starts, i);
                 const A share = std::exp(score - logsumexps[row]) * scales[row];
                 return chosen[row] - first_class == i ? share - scales[row] : share;
               });
  }
};

}  // namespace

void softmax_rows(SoftmaxForm form, const LocalTensor& target, const LocalTensor& source, int dim) {
  with_rows<2>({target, source}, dim, [&]<typename T>(const RowOperands<T, 2>& rows) {
    for_each_team(rows.items(), SoftmaxRows<T>{rows, form}, stream_of_rows(source));
  });
}

void softmax_rows_backward(SoftmaxForm form, const LocalTensor& target, const LocalTensor& grad,
                           const LocalTensor& output, int dim) {
  with_rows<3>({target, grad, output}, dim, [&]<typename T>(const RowOperands<T, 3>& rows) {
    for_each_team(rows.items(), SoftmaxRowsBackward<T>{rows, form}, stream_of_rows(output));
  });
}

void cross_entropy_losses(const CrossEntropy& results, const LocalTensor& logits,
                          const LocalTensor& chosen, std::int64_t ignored) {
  with_rows<1>({logits}, 1, [&]<typename T>(const RowOperands<T, 1>& rows) {
    using A = ComputeType<T>;
    for_each_team(
        rows.items(),
        CrossEntropyLosses<T>{rows, results.loss.data_as<A>(), results.logsumexp.data_as<A>(),
                              chosen.data_as<const std::int64_t>(), ignored},
        stream_of_rows(logits));
  });
}

void cross_entropy_gradients(const LocalTensor& target, const LocalTensor& scales,
                             const LocalTensor& logits, const LocalTensor& chosen,
                             const LocalTensor& logsumexp, std::int64_t ignored,
                             std::int64_t first_class) {
  with_rows<2>({target, logits}, 1, [&]<typename T>(const RowOperands<T, 2>& rows) {
    using A = ComputeType<T>;
    for_each_team(
        rows.items(),
        CrossEntropyGradients<T>{rows, scales.data_as<const A>(), logsumexp.data_as<const A>(),
                                 chosen.data_as<const std::int64_t>(), ignored, first_class},
        stream_of_rows(logits));
  });
}

}  // namespace dtrun::tensors::cuda
