// Rows become columns, eight by eight in registers.
#pragma once

#include <cstdint>

namespace dtrun::tensors {

/// result[columns, rows] of in[rows, columns]; the rows of each lie in runs, at distances in
/// elements. Writes zeros behind each row of the result up to `filled`, in whole squares: a
/// multiple of 8 and at least `rows`, or `rows` itself, which writes nothing behind it.
/// @tparam A std::uint16_t, float or double, for elements of that size
template <typename A>
void transpose_rows(A* result, std::int64_t result_row, const A* in, std::int64_t in_row,
                    std::int64_t rows, std::int64_t columns, std::int64_t filled);

}  // namespace dtrun::tensors
