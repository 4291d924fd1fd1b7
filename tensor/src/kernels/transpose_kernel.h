// Rows become columns, eight by eight in registers.
#pragma once

#include <cstdint>

namespace dtrun::tensors {

/// result[columns, rows] of in[rows, columns]; the rows of each lie in runs, at distances in
/// elements. Zeros stand behind each row of the result up to `filled`.
/// @param filled a multiple of 8, and `rows` at least
/// @tparam A std::uint16_t, std::uint32_t, std::uint64_t, float or double
template <typename A>
void transpose_rows(A* result, std::int64_t result_row, const A* in, std::int64_t in_row,
                    std::int64_t rows, std::int64_t columns, std::int64_t filled);

}  // namespace dtrun::tensors
