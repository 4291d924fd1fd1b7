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

}  // namespace dtrun::tensors
