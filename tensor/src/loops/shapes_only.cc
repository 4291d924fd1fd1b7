#include "dtrun/tensor/shapes_only.h"

namespace dtrun::tensors {
namespace {

constinit thread_local bool is_on = false;

}  // namespace

ShapesOnly::ShapesOnly(bool on) : before_(is_on) {
  is_on = on;
}

ShapesOnly::~ShapesOnly() {
  is_on = before_;
}

bool ShapesOnly::stands() {
  return is_on;
}

ShapesOnly shapes_only_for(DType result) {
  return ShapesOnly(is_on && is_floating_point(result));
}

}  // namespace dtrun::tensors
