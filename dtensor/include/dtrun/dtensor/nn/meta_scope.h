// MetaScope: models that are larger than a rank's memory. While it stands, empty() of this thread
// makes tensors without memory, and so do all layers; what nn::init does with them is remembered.
// fully_shard(), parallelize() and distribute_module() make each rank's part of the first numbers
// where it lies, the same that the whole tensor would have had. torch.device("meta").
//
//     const auto model = nn::make_meta<Gpt>(options);
//     fully_shard(*model, mesh["dp"], {.units = {"blocks.*"}});
#pragma once

#include <memory>
#include <utility>

#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor::nn {

class MetaScope {
 public:
  MetaScope();
  ~MetaScope();
  MetaScope(const MetaScope&) = delete;
  MetaScope& operator=(const MetaScope&) = delete;
};

/// A module that is made within a MetaScope.
template <typename M, typename... Args>
std::shared_ptr<M> make_meta(Args&&... args) {
  const MetaScope scope;
  return std::make_shared<M>(std::forward<Args>(args)...);
}

/// What has no memory gets it, whole, on this rank: what no call has distributed.
void materialize(const Module& module);

}  // namespace dtrun::dtensor::nn
