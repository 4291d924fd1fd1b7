// A guessed shape: the global shape that from_local computed from this rank's part alone, so that
// other ranks may have another one. A digest of it stands in the spec of the tensor, and in those
// of what is computed from the tensor. Sums of such tensors carry it with them: their sizes do not
// tell that ranks have divided by different counts.
#pragma once

#include <cstdint>
#include <string>

#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

/// Never 0, which says that nothing was guessed.
std::uint32_t guess_of(const tensors::Shape& shape);
/// Of what is computed from both.
std::uint32_t joined_guesses(std::uint32_t one, std::uint32_t other);
/// The same spec with that guess.
Spec with_guess(const Spec& spec, std::uint32_t guess);

/// Of a disagreement of ranks: "; from_local was not given ..."; empty where nothing was guessed.
std::string guess_text(const SpecBody& spec);
/// What to try then.
inline constexpr const char* kGuessRemedy =
    "where the parts differ, give from_local the shape, {.shape = ..., .has_shape = true}, or each "
    "rank's size: Shard(dim, {sizes})";

}  // namespace dtrun::dtensor
