// for_each_line: hands the lines of tensors of one shape, along one dim, to a kernel of dense rows.
// A line that is not a dense run of the kernel's dtype is brought into that form, and back. Dealt
// to the calling thread's pool.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

enum class Flow : std::uint8_t { in, out };

struct LineOperand {
  const LocalTensor* tensor;
  Flow flow;
};

constexpr std::size_t kMostLineOperands = 4;

/// Consecutive ones of a chunk, in the row-major order of the other dims.
struct Lines {
  std::int64_t first;
  std::int64_t count;
  std::size_t operands;
  void* const* data;          ///< of each operand, its first line
  const std::int64_t* steps;  ///< to its next line, bytes
};

struct LineBody {
  void* context;
  void (*run)(void* context, const Lines& lines);
};

/// How many lines a chunk of for_each_line() has: depends on the shape only.
std::int64_t lines_a_chunk(std::int64_t length);

/// @param dim in [0, rank); a tensor without dims is one line of one element
/// @param compute what the body's operands point to: f32 or f64
/// @param a_chunk lines
void run_lines(int dim, DType compute, std::span<const LineOperand> operands, std::int64_t a_chunk,
               LineBody body);

/// body(line, pointers to each operand's line)
template <typename Body>
void for_each_line(int dim, DType compute, std::span<const LineOperand> operands, Body&& body) {
  using Type = std::remove_reference_t<Body>;
  const LocalTensor& tensor = *operands[0].tensor;
  const auto each = [](void* context, const Lines& lines) {
    std::array<void*, kMostLineOperands> line;
    for (std::int64_t i = 0; i < lines.count; ++i) {
      for (std::size_t k = 0; k < lines.operands; ++k)
        line[k] = static_cast<char*>(lines.data[k]) + i * lines.steps[k];
      (*static_cast<Type*>(context))(lines.first + i, line.data());
    }
  };
  run_lines(dim, compute, operands, lines_a_chunk(tensor.dim() == 0 ? 1 : tensor.size(dim)),
            {const_cast<void*>(static_cast<const void*>(&body)), each});
}

/// body(lines): many at a time, in smaller chunks, for kernels that take them together.
template <typename Body>
void for_each_lines(int dim, DType compute, std::span<const LineOperand> operands, Body&& body) {
  using Type = std::remove_reference_t<Body>;
  const LocalTensor& tensor = *operands[0].tensor;
  const std::int64_t length = tensor.dim() == 0 ? 1 : tensor.size(dim);
  run_lines(dim, compute, operands, std::max<std::int64_t>(1, lines_a_chunk(length) / 2),
            {const_cast<void*>(static_cast<const void*>(&body)),
             [](void* context, const Lines& lines) { (*static_cast<Type*>(context))(lines); }});
}

}  // namespace dtrun::tensors
