// A plugin of dtrun-bench: the backend "store" (support/store_backend.h).
#include "dtrun/collectives/register_backend.h"
#include "support/store_backend.h"

using namespace dtrun;

extern "C" void dtrun_register_backends(decltype(collectives::register_backend)* register_backend) {
  register_backend(
      "store",
      [](const collectives::GroupOptions& options) {
        return std::make_unique<test::StoreBackend>(options);
      },
      tensors::DeviceType::cpu);
}
