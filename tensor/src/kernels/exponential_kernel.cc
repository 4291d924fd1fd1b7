#include "kernels/map_operators.h"
#include "kernels/vector_math.h"

namespace dtrun::tensors {
namespace {

struct Exp {
  template <typename T>
  T operator()(T x) const {
    return vector_math::exp(x);
  }
};
struct Log {
  template <typename T>
  T operator()(T x) const {
    return vector_math::log(x);
  }
};
struct Log2 {
  template <typename T>
  T operator()(T x) const {
    return vector_math::log2(x);
  }
};
struct Log10 {
  template <typename T>
  T operator()(T x) const {
    return vector_math::log10(x);
  }
};
struct Log1p {
  template <typename T>
  T operator()(T x) const {
    return vector_math::log1p(x);
  }
};
struct Expm1 {
  template <typename T>
  T operator()(T x) const {
    return vector_math::expm1(x);
  }
};
struct ErrorFunction {
  template <typename T>
  T operator()(T x) const {
    return vector_math::erf(x);
  }
};
struct ErrorComplement {
  template <typename T>
  T operator()(T x) const {
    return vector_math::erfc(x);
  }
};

struct Sigmoid {
  template <typename T>
  T operator()(T x) const {
    return 1 / (1 + vector_math::exp(-x));
  }
};
struct Silu {
  template <typename T>
  T operator()(T x) const {
    return x / (1 + vector_math::exp(-x));
  }
};
struct Gelu {
  template <typename T>
  T operator()(T x) const {
    return x * T{0.5} * (1 + vector_math::erf(x * T{0.70710678118654752440}));
  }
};
struct GeluTanh {
  template <typename T>
  T operator()(T x) const {
    constexpr T kScale = T{0.79788456080286535588};  // sqrt(2 / pi)
    return T{0.5} * x * (1 + vector_math::tanh(kScale * (x + T{0.044715} * x * x * x)));
  }
};
struct Elu {
  double alpha;
  explicit Elu(const MapNumbers& numbers) : alpha(numbers.floating[0]) {}
  template <typename T>
  T operator()(T x) const {
    const T below = static_cast<T>(alpha) * vector_math::expm1(x);
    return x > 0 ? x : below;
  }
};
struct Mish {
  template <typename T>
  T operator()(T x) const {
    return x * vector_math::tanh(vector_math::log1p(vector_math::exp(x)));
  }
};
struct Softplus {
  double beta;
  double threshold;
  explicit Softplus(const MapNumbers& numbers)
      : beta(numbers.floating[0]), threshold(numbers.floating[1]) {}
  template <typename T>
  T operator()(T x) const {
    const T scaled = x * static_cast<T>(beta);
    const T curved = vector_math::log1p(vector_math::exp(scaled)) / static_cast<T>(beta);
    return scaled > static_cast<T>(threshold) ? x : curved;
  }
};

/// The greater one, and what the other adds.
struct LogAddExp {
  template <typename T>
  T operator()(T a, T b) const {
    const T greater = a > b ? a : b;
    const T distance = a > b ? b - a : a - b;
    // Equal infinities have no distance.
    const T more = a == b ? std::numbers::ln2_v<T> : vector_math::log1p(vector_math::exp(distance));
    return a != a || b != b ? a + b : greater + more;
  }
};

}  // namespace

const MapOperator kExp{"exp", Domain::to_floating, one_floating<Exp>()};
const MapOperator kLog{"log", Domain::to_floating, one_floating<Log>()};
const MapOperator kLog2{"log2", Domain::to_floating, one_floating<Log2>()};
const MapOperator kLog10{"log10", Domain::to_floating, one_floating<Log10>()};
const MapOperator kLog1p{"log1p", Domain::to_floating, one_floating<Log1p>()};
const MapOperator kExpm1{"expm1", Domain::to_floating, one_floating<Expm1>()};
const MapOperator kErf{"erf", Domain::to_floating, one_floating<ErrorFunction>()};
const MapOperator kErfc{"erfc", Domain::to_floating, one_floating<ErrorComplement>()};
const MapOperator kSigmoid{"sigmoid", Domain::to_floating, one_floating<Sigmoid>()};
const MapOperator kSilu{"silu", Domain::floating, one_floating<Silu>()};
const MapOperator kGelu{"gelu", Domain::floating, one_floating<Gelu>()};
const MapOperator kGeluTanh{"gelu", Domain::floating, one_floating<GeluTanh>()};
const MapOperator kMish{"mish", Domain::floating, one_floating<Mish>()};
const MapOperator kElu{"elu", Domain::floating, one_floating<Elu>()};
const MapOperator kLogAddExp{"logaddexp", Domain::floating, two_floating<LogAddExp>()};
const MapOperator kSoftplus{"softplus", Domain::floating, one_floating<Softplus>()};

}  // namespace dtrun::tensors
