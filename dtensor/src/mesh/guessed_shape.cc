#include "mesh/guessed_shape.h"

#include <algorithm>
#include <mutex>

#include "dtrun/tensor/ops.h"
#include "mesh/mesh_body.h"

namespace dtrun::dtensor {
namespace {

/// FNV-1a of the numbers' bytes.
std::uint32_t digest_of(std::initializer_list<std::uint64_t> first, const tensors::Shape& rest) {
  std::uint64_t digest = 0xcbf29ce484222325;
  const auto add = [&](std::uint64_t number) {
    for (int byte = 0; byte < 8; ++byte)
      digest = (digest ^ (number >> 8 * byte & 0xff)) * 0x100000001b3;
  };
  for (const std::uint64_t number : first) add(number);
  for (const std::int64_t number : rest) add(static_cast<std::uint64_t>(number));
  return std::max(1U, static_cast<std::uint32_t>(digest ^ digest >> 32));
}

}  // namespace

std::uint32_t guess_of(const tensors::Shape& shape) {
  return digest_of({}, shape);
}

std::uint32_t joined_guesses(std::uint32_t one, std::uint32_t other) {
  if (one == 0 || one == other) return other;
  return other == 0 ? one : digest_of({one, other}, {});
}

Spec with_guess(const Spec& spec, std::uint32_t guess) {
  SpecBody& plain = *spec.body();
  if (plain.guess == guess) return spec;
  MeshBody& mesh = *plain.mesh().body();
  const std::lock_guard lock(mesh.mutex);
  return Spec(mesh.specs.intern(mesh, plain.layout, plain.shape, plain.dtype, guess));
}

std::string guess_text(const SpecBody& spec) {
  if (spec.guess == 0) return "";
  if (spec.guess == guess_of(spec.shape))
    return "; from_local was not given the global shape and took it that all ranks have parts of "
           "equal shape, as this rank's " +
           tensors::shape_to_string(spec.box.shape);
  return "; what it is computed from came from from_local, which was not given the global shape "
         "and took it that all ranks have parts of equal shape";
}

}  // namespace dtrun::dtensor
