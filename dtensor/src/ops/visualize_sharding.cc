#include "dtrun/dtensor/ops/visualize_sharding.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace dtrun::dtensor {
namespace {

ShardingSubject subject_of(const Tensor& x) {
  const DeviceMesh mesh = x.device_mesh();
  return {x.shape(), mesh.shape(), x.spec().layout(), x.spec().to_string()};
}

bool wants_colors() {
  const char* const refused = std::getenv("NO_COLOR");
  return ::isatty(STDOUT_FILENO) == 1 && (refused == nullptr || *refused == '\0');
}

}  // namespace

void visualize_sharding(const Tensor& x) {
  if (x.device_mesh().rank() != 0) return;
  const std::string text = sharding_text(x, wants_colors() ? Colors::terminal : Colors::none);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string sharding_text(const Tensor& x, Colors colors) {
  return sharding_text(subject_of(x), colors);
}

std::string sharding_svg(const Tensor& x) {
  return sharding_svg(subject_of(x));
}

}  // namespace dtrun::dtensor
