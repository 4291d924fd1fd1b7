// What is made of exp, log and erf.
#pragma once

#include <numbers>

#include "formulas/transcendental.h"
#include "kernels/map_numbers.h"

namespace dtrun::tensors::formulas {
namespace {

struct Exp {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::exp(x);
  }
};
struct Log {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::log(x);
  }
};
struct Log2 {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::log2(x);
  }
};
struct Log10 {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::log10(x);
  }
};
struct Log1p {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::log1p(x);
  }
};
struct Expm1 {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::expm1(x);
  }
};
struct ErrorFunction {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::erf(x);
  }
};
struct ErrorComplement {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::erfc(x);
  }
};

struct Sigmoid {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return 1 / (1 + vector_math::exp(-x));
  }
};
struct Silu {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return x / (1 + vector_math::exp(-x));
  }
};
struct Gelu {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return x * T{0.5} * (1 + vector_math::erf(x * T{0.70710678118654752440}));
  }
};
struct GeluTanh {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    constexpr T kScale = T{0.79788456080286535588};  // sqrt(2 / pi)
    return T{0.5} * x * (1 + vector_math::tanh(kScale * (x + T{0.044715} * x * x * x)));
  }
};
struct Elu {
  double alpha;
  DTRUN_BOTH explicit Elu(const MapNumbers& numbers) : alpha(numbers.floating[0]) {}
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    const T below = static_cast<T>(alpha) * vector_math::expm1(x);
    return x > 0 ? x : below;
  }
};
struct Mish {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return x * vector_math::tanh(vector_math::log1p(vector_math::exp(x)));
  }
};
struct Softplus {
  double beta;
  double threshold;
  DTRUN_BOTH explicit Softplus(const MapNumbers& numbers)
      : beta(numbers.floating[0]), threshold(numbers.floating[1]) {}
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    const T scaled = x * static_cast<T>(beta);
    const T curved = vector_math::log1p(vector_math::exp(scaled)) / static_cast<T>(beta);
    return scaled > static_cast<T>(threshold) ? x : curved;
  }
};

// Gradients: of the gradient g of the result and the result y, or what it was computed from, x.
struct SigmoidBackward {
  template <typename T>
  DTRUN_BOTH T operator()(T g, T y) const {
    return g * ((1 - y) * y);
  }
};
struct TanhBackward {
  template <typename T>
  DTRUN_BOTH T operator()(T g, T y) const {
    return g * (1 - y * y);
  }
};
struct SiluBackward {
  template <typename T>
  DTRUN_BOTH T operator()(T g, T x) const {
    const T s = 1 / (1 + vector_math::exp(-x));
    return g * s * (1 + x * (1 - s));
  }
};
struct GeluBackward {
  template <typename T>
  DTRUN_BOTH T operator()(T g, T x) const {
    const T probability = T{0.5} * (1 + vector_math::erf(x * T{0.70710678118654752440}));
    const T density = T{0.39894228040143267794} * vector_math::exp_of_negative(T{-0.5} * x * x);
    return g * (probability + x * density);
  }
};
struct GeluTanhBackward {
  template <typename T>
  DTRUN_BOTH T operator()(T g, T x) const {
    constexpr T kScale = T{0.79788456080286535588};  // sqrt(2 / pi)
    const T square = x * x;
    const T t = vector_math::tanh(kScale * (x + T{0.044715} * square * x));
    const T inner = kScale * (1 + T{0.134145} * square);
    return g * T{0.5} * ((1 + t) + x * (1 - t * t) * inner);
  }
};

/// The greater one, and what the other adds.
struct LogAddExp {
  template <typename T>
  DTRUN_BOTH T operator()(T a, T b) const {
    const T greater = a > b ? a : b;
    const T distance = a > b ? b - a : a - b;
    // Equal infinities have no distance.
    const T more = a == b ? std::numbers::ln2_v<T> : vector_math::log1p(vector_math::exp(distance));
    return a != a || b != b ? a + b : greater + more;
  }
};

}  // namespace
}  // namespace dtrun::tensors::formulas
