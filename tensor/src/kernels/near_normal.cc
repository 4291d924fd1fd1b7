// Compiled with -ffp-contract=fast: so it must not contain normal_number.h's functions, whose bits
// are without. The polynomials are minimax ones of relative error, by Remez's exchange.
#include "kernels/near_normal.h"

#include <cmath>

#include "multiversion.h"
#include "whole_double.h"

namespace dtrun::tensors {
namespace {

constexpr double kMinusTwoLn2 = -2 * 0.693147180559945309417;

/// -2 ln of the 53 random bits as a number in (0, 1]: ln of 2^e * m is e ln 2 + 2 atanh(s), with s
/// = (m-1)/(m+1) and m between sqrt(1/2) and sqrt(2). The polynomial in s^2, within 2^-45, is that
/// of -4 atanh(s) / s.
DTRUN_INLINED double squared_radius(std::uint64_t random) {
  const double whole = whole_double((random >> 11) + 1);  // 2^53 times the number
  constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  constexpr std::uint64_t kExponent = 0xfff0000000000000;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(whole);
  const std::uint64_t above = bits - kSqrtHalf;
  const double m = std::bit_cast<double>(bits - (above & kExponent));
  const double power =
      std::bit_cast<double>(above >> 52 | std::bit_cast<std::uint64_t>(0x1p52)) - (0x1p52 + 53);
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double series = -0x1.919812ef9c263p-2;
  series = series * square + -0x1.c6208cddf03d3p-2;
  series = series * square + -0x1.249439605398bp-1;
  series = series * square + -0x1.99999628a5c17p-1;
  series = series * square + -0x1.5555555672df4p+0;
  series = series * square + -0x1.fffffffffff10p+1;
  return s * series + power * kMinusTwoLn2;
}

/// sin(2 pi x) for x of up to an eighth, within 2^-47.
DTRUN_INLINED double sine_of_turns(double x) {
  const double square = x * x;
  double series = -0x1.dd4e53d505a29p+3;
  series = series * square + 0x1.5071bed3bfed9p+5;
  series = series * square + -0x1.32d2c6298a206p+6;
  series = series * square + 0x1.466bc670fd11ap+6;
  series = series * square + -0x1.4abbce62577b9p+5;
  series = series * square + 0x1.921fb54442cf8p+2;
  return series * x;
}

/// cos(2 pi x), within 2^-43.
DTRUN_INLINED double cosine_of_turns(double x) {
  const double square = x * x;
  double series = -0x1.a0d8aa67491f7p+4;
  series = series * square + 0x1.e1e761272b32ep+5;
  series = series * square + -0x1.55d3b9724fc1dp+6;
  series = series * square + 0x1.03c1f073cd29fp+6;
  series = series * square + -0x1.3bd3cc9bd098ap+4;
  return series * square + 0x1.ffffffffffdb1p-1;
}

}  // namespace

// Not in an anonymous namespace: the loader chooses by name. Two loops: so the processor divides
// for many pairs while it computes others' polynomials.
DTRUN_MULTIVERSION void near_normal_numbers(double* target, const std::uint64_t* bits,
                                            std::int64_t pairs) {
  double squares[kMostNearPairs];
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t l = 0; l < pairs; ++l) squares[l] = squared_radius(bits[2 * l]);
  constexpr std::uint64_t kTop = std::uint64_t{1} << 63;
  constexpr std::uint64_t kSecond = kTop >> 1;
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t l = 0; l < pairs; ++l) {
    const double radius = std::sqrt(squares[l]);
    // 1 - (n + 1) / 2^53 is ~n / 2^53. An eighth of a turn more, and the top bits are the quarter.
    const std::uint64_t turned = ~bits[2 * l + 1] + (kSecond >> 1);
    const std::uint64_t part = (turned & (kSecond - 1)) >> 11;
    const double from_quarter =
        std::bit_cast<double>(part | std::bit_cast<std::uint64_t>(0x1p52)) - (0x1p52 + 0x1p50);
    const double x = from_quarter * 0x1p-53;
    const double sine = sine_of_turns(x);
    const double cosine = cosine_of_turns(x);
    // Quarters 1 and 3 swap them; 2 and 3 turn the sine round, 1 and 2 the cosine.
    const bool is_swapped = (turned & kSecond) != 0;
    const double even = radius * (is_swapped ? sine : cosine);
    const double odd = radius * (is_swapped ? cosine : sine);
    const std::uint64_t even_sign = (turned + kSecond) & kTop;
    target[2 * l] = std::bit_cast<double>(std::bit_cast<std::uint64_t>(even) ^ even_sign);
    target[2 * l + 1] = std::bit_cast<double>(std::bit_cast<std::uint64_t>(odd) ^ (turned & kTop));
  }
}

}  // namespace dtrun::tensors
