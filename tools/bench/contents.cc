#include "bench/contents.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::bench {
namespace {

using collectives::ReduceOp;
using tensors::DType;

/// A prime: no part of a buffer begins where another one does in the pattern.
constexpr std::size_t kPeriod = 1021;

/// Whole numbers up to here, and their sums in any order, are exact.
int exact_limit(DType dtype) {
  switch (dtype) {
    case DType::i8:
      return 127;
    case DType::i16:
      return 32767;
    case DType::u8:
      return 255;
    case DType::boolean:
      return 1;
    case DType::bf16:
      return 256;
    case DType::f16:
      return 2048;
    default:
      return 1 << 20;
  }
}

std::uint64_t mixed(std::uint64_t index, std::uint64_t rank) {
  std::uint64_t value = (index + 1) * 0x9e3779b97f4a7c15 + (rank + 1) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 30)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

/// A pattern's element where nothing is summed up, as far as the dtype holds it.
double plain_term(DType dtype, std::size_t index, std::uint64_t rank) {
  const auto values = static_cast<std::uint64_t>(exact_limit(dtype)) + 1;
  return static_cast<double>(mixed(index, rank) % std::min<std::uint64_t>(200, values));
}

/// What combines bits: band, bor or bxor, also where bools are concerned; sum: none of them.
ReduceOp bits_of(const Call& call) {
  switch (call.reduction) {
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      return call.reduction;
    case ReduceOp::product:
    case ReduceOp::min:
      return call.dtype == DType::boolean ? ReduceOp::band : ReduceOp::sum;
    default:
      return call.dtype == DType::boolean ? ReduceOp::bor : ReduceOp::sum;
  }
}

/// Of an or each bit comes from one rank, and of an and one rank lacks it: where each had bits of
/// its own, those of many ranks would nearly always come to all ones, or to all zeros.
std::uint64_t bits_term(ReduceOp bits, DType dtype, std::size_t index, std::uint64_t rank,
                        int ranks) {
  const int width = dtype == DType::boolean ? 1 : 7;
  if (bits == ReduceOp::bxor) return mixed(index, rank) % (1U << width);
  const std::uint64_t result = mixed(index, 0);
  std::uint64_t given = 0;
  for (int bit = 0; bit < width; ++bit) {
    const bool is_given =
        (result >> bit & 1) != 0 &&
        mixed(index, static_cast<std::uint64_t>(bit) + 1) % static_cast<std::uint64_t>(ranks) ==
            rank;
    given |= static_cast<std::uint64_t>(is_given != (bits == ReduceOp::band)) << bit;
  }
  return given;
}

/// The element of a rank's pattern.
double term(const Call& call, std::size_t index, int rank, int ranks) {
  const auto number = static_cast<std::uint64_t>(rank);
  if (!reduces(call.operation)) return plain_term(call.dtype, index, number);
  if (const ReduceOp bits = bits_of(call); bits != ReduceOp::sum)
    return static_cast<double>(bits_term(bits, call.dtype, index, number, ranks));
  switch (call.reduction) {
    case ReduceOp::product:  // at most four factors are not 1
      return (index + number) % static_cast<std::size_t>(ranks) < 4 ? 2 : 1;
    case ReduceOp::avg: {
      // Neighbours go up and down by one, and the mean is a power of two: it survives a
      // multiplication by 1/ranks, which is not exact.
      const bool has_neighbour = rank % 2 == 1 || rank + 1 < ranks;
      const double step = has_neighbour ? (rank % 2 == 0 ? 1 : -1) : 0;
      return (mixed(index, 0) % 2 == 0 ? 2 : 4) + step;
    }
    case ReduceOp::sum:
    case ReduceOp::premul_sum: {
      // Where there are more ranks than the dtype counts, some give nothing to this element.
      const int limit = exact_limit(call.dtype);
      const auto every = static_cast<std::uint64_t>((ranks + limit - 1) / limit);
      const auto most = static_cast<std::uint64_t>(std::clamp(limit / ranks, 1, 100));
      const double value =
          (index + number) % every == 0 ? 1 + static_cast<double>(mixed(index, number) % most) : 0;
      return call.reduction == ReduceOp::sum ? value : value / premul_factor(rank);
    }
    default:
      return plain_term(call.dtype, index, number);
  }
}

double combine(const Call& call, double left, double right) {
  const auto left_bits = static_cast<std::uint64_t>(left);
  const auto right_bits = static_cast<std::uint64_t>(right);
  switch (bits_of(call)) {
    case ReduceOp::band:
      return static_cast<double>(left_bits & right_bits);
    case ReduceOp::bor:
      return static_cast<double>(left_bits | right_bits);
    case ReduceOp::bxor:
      return static_cast<double>(left_bits ^ right_bits);
    default:
      break;
  }
  switch (call.reduction) {
    case ReduceOp::product:
      return left * right;
    case ReduceOp::min:
      return std::min(left, right);
    case ReduceOp::max:
      return std::max(left, right);
    default:
      return left + right;
  }
}

std::vector<std::byte> bytes_of(const std::vector<double>& values, DType dtype) {
  const auto tensor =
      tensors::tensor_from(values, {static_cast<std::int64_t>(values.size())}, dtype);
  const auto* const data = tensor.data_as<std::byte>();
  return {data, data + tensor.bytes()};
}

}  // namespace

void require_exact(const Call& call, int ranks) {
  // The sum of the terms of an average is at most five times the ranks.
  if (!reduces(call.operation) || call.reduction != ReduceOp::avg ||
      5 * ranks <= exact_limit(call.dtype))
    return;
  throw base::Error(base::ErrorCode::kUsage,
                    "the average of " + std::to_string(ranks) + " ranks cannot be checked in " +
                        std::string(tensors::dtype_short_name(call.dtype)),
                    "their sum is not exact in it", "another --datatype, or --check 0");
}

Contents::Contents(const Call& call, int rank, int ranks)
    : item_size_(tensors::item_size(call.dtype)),
      output_bytes_(output_count(call, rank, ranks) * item_size_) {
  std::vector<double> result;
  for (int r = 0; r < ranks; ++r) {
    std::vector<double> values(kPeriod);
    for (std::size_t i = 0; i < kPeriod; ++i) values[i] = term(call, i, r, ranks);
    patterns_.push_back(bytes_of(values, call.dtype));
    if (reduces(call.operation) && call.reduction == ReduceOp::premul_sum)
      for (double& value : values) value *= premul_factor(r);
    if (r == 0) {
      result = values;
      continue;
    }
    for (std::size_t i = 0; i < kPeriod; ++i) result[i] = combine(call, result[i], values[i]);
  }
  if (reduces(call.operation) && call.reduction == ReduceOp::avg)
    for (double& value : result) value /= ranks;
  if (reduces(call.operation)) reduced_ = bytes_of(result, call.dtype);
  plan(call, rank, ranks);
}

// What each rank gives and gets, for every operation.
void Contents::plan(const Call& call, int rank, int ranks) {
  const auto own = static_cast<std::size_t>(rank);
  const auto size = static_cast<std::size_t>(ranks);
  const auto root = static_cast<std::size_t>(call.root);
  const std::size_t count = call.count;
  const bool is_root = own == root;
  const auto give = [&](std::size_t elements) {
    given_.push_back({&patterns_[own], 0, 0, elements});
  };
  switch (call.operation) {
    case Operation::barrier:
      return;
    case Operation::all_reduce:
    case Operation::reduce:
      give(count);
      if (call.operation == Operation::all_reduce || is_root)
        expected_.push_back({&reduced_, 0, 0, count});
      return;
    case Operation::broadcast:
      if (is_root) give(count);
      expected_.push_back({&patterns_[root], 0, 0, count});
      return;
    case Operation::all_gather:
    case Operation::gather:
      give(count);
      if (call.operation == Operation::gather && !is_root) return;
      for (std::size_t r = 0; r < size; ++r)
        expected_.push_back({&patterns_[r], 0, r * count, count});
      return;
    case Operation::reduce_scatter:
      give(size * count);
      expected_.push_back({&reduced_, own * count, 0, count});
      return;
    case Operation::all_to_all:
      give(size * count);
      for (std::size_t r = 0; r < size; ++r)
        expected_.push_back({&patterns_[r], own * count, r * count, count});
      return;
    case Operation::scatter:
      if (is_root) give(size * count);
      expected_.push_back({&patterns_[root], own * count, 0, count});
      return;
    case Operation::send_recv:
      give(count);
      expected_.push_back({&patterns_[(own + size - 1) % size], 0, 0, count});
      return;
  }
}

// visit(offset in the buffer, bytes of the pattern, how many), in runs that do not wrap.
template <typename Visit>
void Contents::for_each_run(const Part& part, std::uint64_t number, Visit visit) const {
  std::size_t from = (part.first + number * 7) % kPeriod;
  for (std::size_t done = 0; done < part.count;) {
    const std::size_t run = std::min(part.count - done, kPeriod - from);
    visit((part.place + done) * item_size_, part.pattern->data() + from * item_size_,
          run * item_size_);
    done += run;
    from = 0;
  }
}

void Contents::write(std::uint64_t number, std::byte* input, std::byte* output) const {
  constexpr int kRubbish = 0xa5;
  const bool is_written_below = input == output && !given_.empty();
  if (output_bytes_ > 0 && !is_written_below) std::memset(output, kRubbish, output_bytes_);
  for (const Part& part : given_)
    for_each_run(part, number, [&](std::size_t place, const std::byte* from, std::size_t bytes) {
      std::memcpy(input + place, from, bytes);
    });
}

std::size_t Contents::count_wrong(std::uint64_t number, const std::byte* output) const {
  std::size_t wrong = 0;
  for (const Part& part : expected_)
    for_each_run(part, number, [&](std::size_t place, const std::byte* right, std::size_t bytes) {
      if (std::memcmp(output + place, right, bytes) == 0) return;
      for (std::size_t i = 0; i < bytes; i += item_size_)
        wrong += std::memcmp(output + place + i, right + i, item_size_) != 0;
    });
  return wrong;
}

}  // namespace dtrun::bench
