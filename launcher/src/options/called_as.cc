#include "options/called_as.h"

namespace dtrun::launcher {

CalledAs called_as(std::string_view name) {
  name = name.substr(name.rfind('/') + 1);
  if (name == "torchrun") return CalledAs::kTorchrun;
  if (name == "torch.distributed.launch") return CalledAs::kTorchDistributedLaunch;
  return CalledAs::kDtrun;
}

}  // namespace dtrun::launcher
