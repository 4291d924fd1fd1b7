// The distributed operations. Output placements are chosen by the rules in src/sharding; inputs are
// redistributed where the cheapest rule wants it.
#pragma once

#include "dtrun/dtensor/dtensor.h"

namespace dtrun::dtensor {

using tensors::Scalar;

/// Both on one mesh. @throws Error kInvalidArgument for different meshes or shapes that do not
/// broadcast
DTensor add(const DTensor& a, const DTensor& b);
DTensor mul(const DTensor& a, const DTensor& b);
/// The dtype as of a local tensor and a number.
DTensor mul(const DTensor& a, Scalar b);
/// torch.matmul's shapes: 1-D, 2-D and batched.
DTensor matmul(const DTensor& a, const DTensor& b);
inline DTensor operator+(const DTensor& a, const DTensor& b) {
  return add(a, b);
}
inline DTensor operator*(const DTensor& a, const DTensor& b) {
  return mul(a, b);
}
inline DTensor operator*(const DTensor& a, Scalar b) {
  return mul(a, b);
}
inline DTensor operator*(Scalar a, const DTensor& b) {
  return mul(b, a);
}

}  // namespace dtrun::dtensor
