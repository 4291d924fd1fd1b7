#include "kernels/wide_math.h"

#include "kernels/vector_registers.h"

#if defined(__x86_64__)
// g++ 12 warns of what its own header leaves undefined on purpose.
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace dtrun::tensors {

#if defined(__x86_64__)
namespace {

constexpr int kDegree = 5;
constexpr int kPieces = 32;

/// An odd function that is 1 in the end. A piece is a quarter of an octave; the first one begins
/// at 0, and its polynomial is of the function less x. Chebyshev interpolations.
struct Pieces {
  alignas(64) float center[kPieces];
  alignas(64) float coefficient[kDegree + 1][kPieces];
};

// clang-format off
constexpr int kTanhOctave = -4;
constexpr Pieces kTanh = {
    {0, 0x1.6p-4f, 0x1.ap-4f, 0x1.ep-4f, 0x1.2p-3f, 0x1.6p-3f, 0x1.ap-3f, 0x1.ep-3f, 0x1.2p-2f, 0x1.6p-2f, 0x1.ap-2f, 0x1.ep-2f, 0x1.2p-1f, 0x1.6p-1f, 0x1.ap-1f, 0x1.ep-1f, 0x1.2p0f, 0x1.6p0f, 0x1.ap0f, 0x1.ep0f, 0x1.2p1f, 0x1.6p1f, 0x1.ap1f, 0x1.ep1f, 0x1.2p2f, 0x1.6p2f, 0x1.ap2f, 0x1.ep2f, 0x1.2p3f, 0x1.6p3f, 0x1.ap3f, 0x1.ep3f},
    {{0, 0x1.5f22d2p-4f, 0x1.9e9356p-4f, 0x1.ddd092p-4f, 0x1.1e1ddp-3f, 0x1.5c9308p-3f, 0x1.9a5f1cp-3f, 0x1.d7665cp-3f, 0x1.18a39ap-2f, 0x1.52c2c6p-2f, 0x1.8a87e2p-2f, 0x1.bfae6ap-2f, 0x1.05087p-1f, 0x1.3157ep-1f, 0x1.5789p-1f, 0x1.77d838p-1f, 0x1.9e5cb6p-1f, 0x1.c278a6p-1f, 0x1.d9c6fcp-1f, 0x1.e8789ep-1f, 0x1.f4bfd6p-1f, 0x1.fbd50ap-1f, 0x1.fe767ap-1f, 0x1.ff6f18p-1f, 0x1.ffdfa6p-1f, 0x1.fffbap-1f, 0x1.ffff68p-1f, 0x1.ffffecp-1f, 0x1.fffffep-1f, 0x1p0f, 0x1p0f, 0x1p0f},
     {-0x1.a41138p-32f, 0x1.fc3cbep-1f, 0x1.fac13ep-1f, 0x1.f9085ap-1f, 0x1.f601cap-1f, 0x1.f12bp-1f, 0x1.eb715ap-1f, 0x1.e4dfb2p-1f, 0x1.d98b36p-1f, 0x1.c7f724p-1f, 0x1.b3ff2ep-1f, 0x1.9e23aep-1f, 0x1.7aeae6p-1f, 0x1.49e6cp-1f, 0x1.197fcep-1f, 0x1.d834d2p-2f, 0x1.615002p-2f, 0x1.cea744p-3f, 0x1.265e34p-3f, 0x1.6fcfa6p-4f, 0x1.64108ap-5f, 0x1.09a7a6p-6f, 0x1.88ef6ap-8f, 0x1.21a7bp-9f, 0x1.02bf32p-11f, 0x1.18335p-14f, 0x1.2f6078p-17f, 0x1.487646p-20f, 0x1.05c30cp-24f, 0x1.32d66ap-30f, 0x1.67ad9cp-36f, 0x1.a598dcp-42f},
     {0, -0x1.5c8e36p-4f, -0x1.9a5416p-4f, -0x1.d75004p-4f, -0x1.18883cp-3f, -0x1.5279fep-3f, -0x1.89e50ep-3f, -0x1.be6cb8p-3f, -0x1.038f7p-2f, -0x1.2daf98p-2f, -0x1.4ff712p-2f, -0x1.6a1d38p-2f, -0x1.825de4p-2f, -0x1.897d22p-2f, -0x1.79c0e6p-2f, -0x1.5aa224p-2f, -0x1.1df056p-2f, -0x1.970ed2p-3f, -0x1.1064bap-3f, -0x1.5ee8aap-4f, -0x1.5c3a3cp-5f, -0x1.077906p-6f, -0x1.87b86ep-8f, -0x1.214eaap-9f, -0x1.02451ep-11f, -0x1.17bd96p-14f, -0x1.2ee32p-17f, -0x1.47eeep-20f, -0x1.fccc14p-25f, -0x1.2a34dcp-30f, -0x1.5d910ap-36f, -0x1.9a673cp-42f},
     {-0x1.55550ap-2f, -0x1.4b5adp-2f, -0x1.477428p-2f, -0x1.42f17cp-2f, -0x1.3b134ep-2f, -0x1.2ea3fcp-2f, -0x1.202a34p-2f, -0x1.0fdf04p-2f, -0x1.e91ee6p-3f, -0x1.98587ep-3f, -0x1.4271f4p-3f, -0x1.d71f68p-4f, -0x1.bd0b34p-5f, 0x1.d76bb6p-7f, 0x1.072cdep-4f, 0x1.8434a4p-4f, 0x1.c68d5p-4f, 0x1.97d7acp-4f, 0x1.33dee6p-4f, 0x1.a85beap-5f, 0x1.bbcddp-6f, 0x1.599588p-7f, 0x1.039786p-8f, 0x1.80e94ep-10f, 0x1.5881a8p-12f, 0x1.754e5ep-15f, 0x1.9437d6p-18f, 0x1.b5a584p-21f, 0x1.58d0aep-25f, 0x1.94313ap-31f, 0x1.d9c3fcp-37f, 0x1.15377p-42f},
     {0, 0x1.cb981ep-5f, 0x1.0d55ccp-4f, 0x1.33c77ap-4f, 0x1.6b051ap-4f, 0x1.af9b74p-4f, 0x1.ed77f8p-4f, 0x1.11e9f2p-3f, 0x1.32dfc6p-3f, 0x1.4fff78p-3f, 0x1.5c02d4p-3f, 0x1.5839ap-3f, 0x1.39dad4p-3f, 0x1.e93af8p-4f, 0x1.47435ep-4f, 0x1.633ac2p-5f, 0x1.e50c1cp-9f, -0x1.599f88p-6f, -0x1.9b961ep-6f, -0x1.5596bp-6f, -0x1.960204p-7f, -0x1.51959cp-8f, -0x1.0374e4p-9f, -0x1.83e7ecp-11f, -0x1.69dadap-13f, -0x1.888ca2p-16f, -0x1.a91eb4p-19f, -0x1.cc4956p-22f, -0x1.a881acp-26f, -0x1.f19b12p-32f, -0x1.239ee2p-37f, -0x1.5369e6p-43f},
     {0x1.100ebcp-3f, 0x1.003a18p-3f, 0x1.f36e28p-4f, 0x1.e4729p-4f, 0x1.ca8f5cp-4f, 0x1.a261b2p-4f, 0x1.74a60ap-4f, 0x1.428b88p-4f, 0x1.e3cc8ap-5f, 0x1.05c1e2p-5f, 0x1.843a0ap-8f, -0x1.193bbep-6f, -0x1.6469cep-5f, -0x1.f8946ap-5f, -0x1.00c184p-4f, -0x1.b2b782p-5f, -0x1.0660b2p-5f, -0x1.37255ep-7f, 0x1.70aabap-10f, 0x1.2dd5ecp-8f, 0x1.04bcap-8f, 0x1.f586fap-10f, 0x1.93732ep-11f, 0x1.326e7ep-12f, 0x1.1cd2c4p-14f, 0x1.358c28p-17f, 0x1.4f5058p-20f, 0x1.6b104cp-23f, 0x1.418c8cp-27f, 0x1.78ec36p-33f, 0x1.b9f65ap-39f, 0x1.070b0cp-44f}}};

constexpr int kErfOctave = -6;
constexpr Pieces kErf = {
    {0, 0x1.6p-6f, 0x1.ap-6f, 0x1.ep-6f, 0x1.2p-5f, 0x1.6p-5f, 0x1.ap-5f, 0x1.ep-5f, 0x1.2p-4f, 0x1.6p-4f, 0x1.ap-4f, 0x1.ep-4f, 0x1.2p-3f, 0x1.6p-3f, 0x1.ap-3f, 0x1.ep-3f, 0x1.2p-2f, 0x1.6p-2f, 0x1.ap-2f, 0x1.ep-2f, 0x1.2p-1f, 0x1.6p-1f, 0x1.ap-1f, 0x1.ep-1f, 0x1.2p0f, 0x1.6p0f, 0x1.ap0f, 0x1.ep0f, 0x1.2p1f, 0x1.6p1f, 0x1.ap1f, 0x1.ep1f},
    {{0, 0x1.8d20dcp-6f, 0x1.d54e0cp-6f, 0x1.0ebbcap-5f, 0x1.44d6ep-5f, 0x1.8cf1f6p-5f, 0x1.d500a8p-5f, 0x1.0e805cp-4f, 0x1.44703ep-4f, 0x1.8c36bep-4f, 0x1.d3cbf8p-4f, 0x1.0d939p-3f, 0x1.42d7fcp-3f, 0x1.89501p-3f, 0x1.cf076ep-3f, 0x1.09eed6p-2f, 0x1.3c9aa8p-2f, 0x1.7e1594p-2f, 0x1.bccfecp-2f, 0x1.f86faap-2f, 0x1.25b8a8p-1f, 0x1.569244p-1f, 0x1.7fb9cp-1f, 0x1.a1551ap-1f, 0x1.c6dad2p-1f, 0x1.e5768cp-1f, 0x1.f4f694p-1f, 0x1.fbe61ep-1f, 0x1.ff4046p-1f, 0x1.fff2dp-1f, 0x1.ffff7p-1f, 0x1.fffffcp-1f},
     {0x1.06eba8p-3f, 0x1.20bb54p0f, 0x1.20adccp0f, 0x1.209e04p0f, 0x1.20821ep0f, 0x1.20550cp0f, 0x1.201f02p0f, 0x1.1fe002p0f, 0x1.1f70c4p0f, 0x1.1ebd56p0f, 0x1.1de698p0f, 0x1.1cecdcp0f, 0x1.1b3572p0f, 0x1.1874dep0f, 0x1.153068p0f, 0x1.116cd8p0f, 0x1.0ae55p0f, 0x1.00abdp0f, 0x1.e9d5a8p-1f, 0x1.cfc41ep-1f, 0x1.a5074ep-1f, 0x1.681ff2p-1f, 0x1.2a8dcep-1f, 0x1.dfca26p-2f, 0x1.45e99cp-2f, 0x1.5ce596p-3f, 0x1.499d48p-4f, 0x1.12ceb4p-5f, 0x1.d41424p-8f, 0x1.336174p-11f, 0x1.e9bb9p-16f, 0x1.d948cap-21f},
     {0, -0x1.8d0194p-6f, -0x1.d51a6cp-6f, -0x1.0e9424p-5f, -0x1.449262p-5f, -0x1.8c74f2p-5f, -0x1.d43262p-5f, -0x1.0de202p-4f, -0x1.435edcp-4f, -0x1.8a4456p-4f, -0x1.d096b6p-4f, -0x1.0b1e0ep-3f, -0x1.3e9c2p-3f, -0x1.81a0bp-3f, -0x1.c26eaap-3f, -0x1.00560cp-2f, -0x1.2c41f8p-2f, -0x1.60ec3cp-2f, -0x1.8dfd98p-2f, -0x1.b2c7dap-2f, -0x1.d9a81ep-2f, -0x1.ef2bdap-2f, -0x1.e52666p-2f, -0x1.c1cd84p-2f, -0x1.6ea75ep-2f, -0x1.dfbd44p-3f, -0x1.0bd0d4p-3f, -0x1.01a26p-4f, -0x1.073172p-6f, -0x1.a5af96p-10f, -0x1.8b64a4p-14f, -0x1.b5a78cp-19f},
     {-0x1.812746p-2f, -0x1.809eccp-2f, -0x1.8068aep-2f, -0x1.802992p-2f, -0x1.7fba0ep-2f, -0x1.7f05fap-2f, -0x1.7e2e2p-2f, -0x1.7d32a2p-2f, -0x1.7b76e8p-2f, -0x1.78ac22p-2f, -0x1.75563ep-2f, -0x1.71774ep-2f, -0x1.6aad46p-2f, -0x1.5fd948p-2f, -0x1.531662p-2f, -0x1.4483bp-2f, -0x1.2b900ap-2f, -0x1.05599cp-2f, -0x1.b588d8p-3f, -0x1.5a9deap-3f, -0x1.9c41eap-4f, -0x1.a4267ap-7f, 0x1.fe074p-5f, 0x1.e4c97p-4f, 0x1.4cb31ep-3f, 0x1.4374f2p-3f, 0x1.d664p-4f, 0x1.143dd2p-4f, 0x1.63f5dep-6f, 0x1.69a02p-9f, 0x1.99d946p-13f, 0x1.0a2cccp-17f},
     {0, 0x1.8cf3a2p-7f, 0x1.d4fa7ap-7f, 0x1.0e6d1cp-6f, 0x1.444dc4p-6f, 0x1.8bf7fp-6f, 0x1.d36436p-6f, 0x1.0d43ep-5f, 0x1.424b86p-5f, 0x1.885062p-5f, 0x1.cd6152p-5f, 0x1.08aap-4f, 0x1.3a5f2p-4f, 0x1.79fce8p-4f, 0x1.b5fd9p-4f, 0x1.edd6eep-4f, 0x1.1c4adep-3f, 0x1.44f9a4p-3f, 0x1.620c6p-3f, 0x1.72f078p-3f, 0x1.752f9cp-3f, 0x1.52b9d8p-3f, 0x1.0f68fp-3f, 0x1.746ecp-4f, 0x1.d03d74p-6f, -0x1.eb3da6p-6f, -0x1.9488p-5f, -0x1.596662p-5f, -0x1.3d03fp-6f, -0x1.bf7c92p-9f, -0x1.46f602p-12f, -0x1.07c7a8p-16f},
     {0x1.ce1f06p-4f, 0x1.cb39aep-4f, 0x1.ca5496p-4f, 0x1.c6d6fcp-4f, 0x1.cb327ap-4f, 0x1.c98da2p-4f, 0x1.c7edd8p-4f, 0x1.c66a4cp-4f, 0x1.c2cadcp-4f, 0x1.bd3cc2p-4f, 0x1.b69b78p-4f, 0x1.aef0dcp-4f, 0x1.a17d86p-4f, 0x1.8c3212p-4f, 0x1.7348c6p-4f, 0x1.57167cp-4f, 0x1.2765dap-4f, 0x1.c0530cp-5f, 0x1.26c758p-5f, 0x1.134f4cp-6f, -0x1.6221d8p-7f, -0x1.54be02p-5f, -0x1.f93834p-5f, -0x1.1cb522p-4f, -0x1.f48534p-5f, -0x1.f5fb8ep-6f, -0x1.2ac038p-9f, 0x1.73d36ap-7f, 0x1.5b17ap-7f, 0x1.7115e2p-9f, 0x1.59edcep-12f, 0x1.4e7e62p-16f}}};

/// 2 to the power of sixteenths.
alignas(64) constexpr float kPowers[16] = {0x1p0f, 0x1.0b5586p0f, 0x1.172b84p0f, 0x1.2387a6p0f, 0x1.306fep0f, 0x1.3dea64p0f, 0x1.4bfdaep0f, 0x1.5ab07ep0f, 0x1.6a09e6p0f, 0x1.7a1148p0f, 0x1.8ace54p0f, 0x1.9c4918p0f, 0x1.ae89fap0f, 0x1.c199bep0f, 0x1.d5818ep0f, 0x1.ea4afap0f};
// clang-format on

DTRUN_WITH_AVX512 inline __m512 look_up(const float* table, __m512i piece) {
  return _mm512_permutex2var_ps(_mm512_load_ps(table), piece, _mm512_load_ps(table + 16));
}

/// @param most less than where the pieces end
DTRUN_WITH_AVX512 inline __m512 odd_function(const Pieces& pieces, int octave, float most,
                                             __m512 x) {
  const __m512 minus = _mm512_set1_ps(-0.0f);
  // A nan comes through: of two the second is taken.
  const __m512 size = _mm512_min_ps(_mm512_set1_ps(most), _mm512_andnot_ps(minus, x));
  const __m512i quarter = _mm512_srli_epi32(_mm512_castps_si512(size), 21);
  const __m512i first = _mm512_set1_epi32(4 * (127 + octave));
  const __m512i piece = _mm512_max_epi32(_mm512_sub_epi32(quarter, first), _mm512_setzero_si512());
  const __m512 way = _mm512_sub_ps(size, look_up(pieces.center, piece));
  __m512 power = look_up(pieces.coefficient[kDegree], piece);
  for (int k = kDegree - 1; k > 0; --k) {
    power = _mm512_fmadd_ps(power, way, look_up(pieces.coefficient[k], piece));
  }
  // In the first piece x itself, elsewhere the coefficient, which is greater than any way.
  const __m512 base = _mm512_max_ps(look_up(pieces.coefficient[0], piece), way);
  return _mm512_or_ps(_mm512_fmadd_ps(power, way, base), _mm512_and_ps(minus, x));
}

DTRUN_WITH_AVX512 inline __m512 exp_of(__m512 x) {
  const __m512 round = _mm512_set1_ps(0x1.8p19f);  // added, it leaves sixteenths in the lowest bits
  x = _mm512_max_ps(_mm512_set1_ps(-104), _mm512_min_ps(_mm512_set1_ps(89), x));
  const __m512 shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), round);
  const __m512 sixteenths = _mm512_sub_ps(shifted, round);
  // ln 2 in two parts.
  __m512 rest = _mm512_fnmadd_ps(sixteenths, _mm512_set1_ps(0x1.62e43p-1f), x);
  rest = _mm512_fmadd_ps(sixteenths, _mm512_set1_ps(0x1.05c61p-29f), rest);
  const __m512 power = _mm512_permutexvar_ps(_mm512_castps_si512(shifted), _mm512_load_ps(kPowers));
  const __m512 upper =
      _mm512_fmadd_ps(rest, _mm512_set1_ps(0x1.55565cp-3f), _mm512_set1_ps(0x1.000148p-1f));
  const __m512 more = _mm512_fmadd_ps(_mm512_mul_ps(rest, rest), upper, rest);
  return _mm512_scalef_ps(_mm512_fmadd_ps(power, more, power), sixteenths);
}
DTRUN_WITH_AVX512 inline __m512 tanh_of(__m512 x) {
  return odd_function(kTanh, kTanhOctave, 15, x);
}
DTRUN_WITH_AVX512 inline __m512 erf_of(__m512 x) {
  return odd_function(kErf, kErfOctave, 3.999f, x);
}
DTRUN_WITH_AVX512 inline __m512 one_and_exp_of_minus(__m512 x) {
  return _mm512_add_ps(_mm512_set1_ps(1), exp_of(_mm512_sub_ps(_mm512_setzero_ps(), x)));
}
/// x / 2 * (1 + y)
DTRUN_WITH_AVX512 inline __m512 half_of(__m512 x, __m512 y) {
  const __m512 half = _mm512_mul_ps(x, _mm512_set1_ps(0.5f));
  return _mm512_fmadd_ps(half, y, half);
}
DTRUN_WITH_AVX512 inline __m512 gelu_of(__m512 x) {
  return half_of(x, erf_of(_mm512_mul_ps(x, _mm512_set1_ps(0.70710678118654752440f))));
}
DTRUN_WITH_AVX512 inline __m512 gelu_tanh_of(__m512 x) {
  const __m512 cube = _mm512_mul_ps(_mm512_mul_ps(x, x), x);
  const __m512 sum = _mm512_fmadd_ps(_mm512_set1_ps(0.044715f), cube, x);
  return half_of(x, tanh_of(_mm512_mul_ps(_mm512_set1_ps(0.79788456080286535588f), sum)));
}

/// g * (probability + x * density), of the normal distribution.
DTRUN_WITH_AVX512 inline __m512 gelu_gradient_of(__m512 g, __m512 x) {
  const __m512 half = _mm512_set1_ps(0.5f);
  const __m512 of_erf = erf_of(_mm512_mul_ps(x, _mm512_set1_ps(0.70710678118654752440f)));
  const __m512 power = exp_of(_mm512_mul_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(-0.5f)));
  const __m512 density = _mm512_mul_ps(_mm512_set1_ps(0.39894228040143267794f), power);
  return _mm512_mul_ps(g, _mm512_fmadd_ps(x, density, _mm512_fmadd_ps(half, of_erf, half)));
}

template <MapFunction kFunction>
DTRUN_WITH_AVX512 inline __m512 value_of(__m512 x) {
  if constexpr (kFunction == MapFunction::exp) return exp_of(x);
  if constexpr (kFunction == MapFunction::tanh) return tanh_of(x);
  if constexpr (kFunction == MapFunction::erf) return erf_of(x);
  if constexpr (kFunction == MapFunction::gelu) return gelu_of(x);
  if constexpr (kFunction == MapFunction::gelu_tanh) return gelu_tanh_of(x);
  if constexpr (kFunction == MapFunction::sigmoid)
    return _mm512_div_ps(_mm512_set1_ps(1), one_and_exp_of_minus(x));
  if constexpr (kFunction == MapFunction::silu) return _mm512_div_ps(x, one_and_exp_of_minus(x));
}

DTRUN_WITH_AVX512 inline __m512 load(const BFloat16* in) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
/// As to_bfloat16, in the upper halves.
DTRUN_WITH_AVX512 inline __m512i rounded_to_bfloat16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}
DTRUN_WITH_AVX512 inline __m512i with_nan(__m512i rounded, __m512 value) {
  const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_mask_mov_epi32(rounded, is_nan, _mm512_set1_epi32(0x7fc00000));
}
DTRUN_WITH_AVX512 inline void store(BFloat16* out, __m512 value) {
  const __m512i rounded = with_nan(rounded_to_bfloat16(value), value);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}
/// Elements 0, 2, 4... and 1, 3, 5..., of which each is the low and the high half of a word.
DTRUN_WITH_AVX512 inline void store_words(BFloat16* out, __m512 even, __m512 odd) {
  __m512i low = rounded_to_bfloat16(even);
  __m512i high = rounded_to_bfloat16(odd);
  if (__builtin_expect(_mm512_cmp_ps_mask(even, odd, _CMP_UNORD_Q) != 0, 0)) {
    low = with_nan(low, even);
    high = with_nan(high, odd);
  }
  constexpr __mmask32 kHighHalves = 0xaaaaaaaa;
  _mm512_storeu_si512(out, _mm512_mask_blend_epi16(kHighHalves, _mm512_srli_epi32(low, 16), high));
}

template <MapFunction kFunction>
DTRUN_WITH_AVX512 void run_wide_f32(void* out, const void* const* in, std::int64_t count,
                                    const MapNumbers&) {
  float* const to = static_cast<float*>(out);
  const float* const from = static_cast<const float*>(in[0]);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    _mm512_storeu_ps(to + i, value_of<kFunction>(_mm512_loadu_ps(from + i)));
  }
}

DTRUN_WITH_AVX512 void run_gelu_backward(void* out, const void* const* in, std::int64_t count,
                                         const MapNumbers&) {
  float* const to = static_cast<float*>(out);
  const float* const g = static_cast<const float*>(in[0]);
  const float* const x = static_cast<const float*>(in[1]);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    _mm512_storeu_ps(to + i, gelu_gradient_of(_mm512_loadu_ps(g + i), _mm512_loadu_ps(x + i)));
  }
}

template <MapFunction kFunction>
DTRUN_WITH_AVX512 void run_wide_bf16(void* out, const void* const* in, std::int64_t count,
                                     const MapNumbers&) {
  BFloat16* const to = static_cast<BFloat16*>(out);
  const BFloat16* const from = static_cast<const BFloat16*>(in[0]);
  // Two elements a word: nothing moves between the parts of a register, as where halves are
  // widened.
  const __m512i high_halves = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    const __m512i words = _mm512_loadu_si512(from + i);
    const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    const __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(words, high_halves));
    store_words(to + i, value_of<kFunction>(even), value_of<kFunction>(odd));
  }
  if (i < count) store(to + i, value_of<kFunction>(load(from + i)));
}

template <MapFunction kFunction>
MapRun run_of(DType dtype) {
  return dtype == DType::f32 ? &run_wide_f32<kFunction> : &run_wide_bf16<kFunction>;
}

}  // namespace

MapRun wide_run(MapFunction function, DType dtype) {
  if (vector_registers() != VectorRegisters::avx512) return nullptr;
  switch (function) {
    case MapFunction::exp:
      return run_of<MapFunction::exp>(dtype);
    case MapFunction::tanh:
      return run_of<MapFunction::tanh>(dtype);
    case MapFunction::erf:
      return run_of<MapFunction::erf>(dtype);
    case MapFunction::gelu:
      return run_of<MapFunction::gelu>(dtype);
    case MapFunction::gelu_tanh:
      return run_of<MapFunction::gelu_tanh>(dtype);
    case MapFunction::sigmoid:
      return run_of<MapFunction::sigmoid>(dtype);
    case MapFunction::silu:
      return run_of<MapFunction::silu>(dtype);
    case MapFunction::gelu_backward:
      return dtype == DType::f32 ? &run_gelu_backward : nullptr;
    default:
      return nullptr;
  }
}
#else
MapRun wide_run(MapFunction, DType) {
  return nullptr;
}
#endif

}  // namespace dtrun::tensors
