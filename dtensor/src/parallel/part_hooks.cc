#include "parallel/part_hooks.h"

#include <vector>

namespace dtrun::dtensor {

void tell_part(nn::Module& module, const std::shared_ptr<const RandomPart>& part) {
  // What each forward that has begun did: the end is told of one that another hook has refused,
  // too.
  const auto begun = std::make_shared<std::vector<bool>>();
  module.register_forward_pre_hook([part, begun](nn::Module&, const Tensors&) {
    const bool enters = !part->stands();
    if (enters) surroundings::enter(part);
    begun->push_back(enters);
    return Tensors();
  });
  module.register_forward_end_hook([begun](nn::Module&) {
    if (begun->empty()) return;
    if (begun->back()) surroundings::leave();
    begun->pop_back();
  });
}

std::shared_ptr<const RandomPart> part_of_samples(const DeviceMesh& mesh) {
  return std::make_shared<const RandomPart>(RandomPart::Level::samples,
                                            std::vector<std::int64_t>{mesh.rank()}, 1, mesh.size(),
                                            mesh.ranks());
}

}  // namespace dtrun::dtensor
