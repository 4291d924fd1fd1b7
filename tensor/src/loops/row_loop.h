// for_each_line: hands the lines of tensors of one shape, along one dim, to a kernel of dense rows.
// A line that is not a dense run of the kernel's dtype is brought into that form, and back. Dealt
// to the calling thread's pool.
#pragma once

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

/// Lines of one chunk: consecutive ones, in the row-major order of the other dims.
struct LineBody {
  void* context;
  void (*run)(void* context, std::int64_t line, void* const* operands);
};

/// How many lines a chunk has: depends on the shape only.
std::int64_t lines_a_chunk(std::int64_t length);

/// @param dim in [0, rank); a tensor without dims is one line of one element
/// @param compute what the body's operands point to: f32 or f64
void run_lines(int dim, DType compute, std::span<const LineOperand> operands, LineBody body);

/// body(line, pointers to each operand's line)
template <typename Body>
void for_each_line(int dim, DType compute, std::span<const LineOperand> operands, Body&& body) {
  using Type = std::remove_reference_t<Body>;
  run_lines(dim, compute, operands,
            {const_cast<void*>(static_cast<const void*>(&body)),
             [](void* context, std::int64_t line, void* const* pointers) {
               (*static_cast<Type*>(context))(line, pointers);
             }});
}

}  // namespace dtrun::tensors
