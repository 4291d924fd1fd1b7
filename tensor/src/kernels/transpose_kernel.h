// Rows become columns, square by square in registers.
#pragma once

#include <cstdint>

namespace dtrun::tensors {

/// Rows and columns that are turned together.
constexpr std::int64_t kTurnedSquare = 8;

/// result[columns, rows] of in[rows, columns]; the rows of each lie in runs, at distances in
/// elements. Zeros stand behind each row of the result up to `filled`.
/// @param filled a multiple of kTurnedSquare, and `rows` at least
/// @tparam A std::uint16_t, std::uint32_t, std::uint64_t, float or double
template <typename A>
void transpose_rows(A* result, std::int64_t result_row, const A* in, std::int64_t in_row,
                    std::int64_t rows, std::int64_t columns, std::int64_t filled);

}  // namespace dtrun::tensors
