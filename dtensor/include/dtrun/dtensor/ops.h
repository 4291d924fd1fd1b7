// The distributed operations. Output placements are chosen by the rules in src/sharding; inputs are
// redistributed where the cheapest rule wants it.
#pragma once

#include "dtrun/dtensor/dtensor.h"

namespace dtrun::dtensor {

/// Both on one mesh. @throws Error kInvalidArgument for different meshes or shapes that do not
/// broadcast
DTensor add(const DTensor& a, const DTensor& b);
DTensor mul(const DTensor& a, const DTensor& b);
DTensor mul(const DTensor& a, double b);
/// torch.matmul's shapes: 1-D, 2-D and batched.
DTensor matmul(const DTensor& a, const DTensor& b);
inline DTensor operator+(const DTensor& a, const DTensor& b) {
  return add(a, b);
}
inline DTensor operator*(const DTensor& a, const DTensor& b) {
  return mul(a, b);
}
inline DTensor operator*(const DTensor& a, double b) {
  return mul(a, b);
}

}  // namespace dtrun::dtensor
