// What the module shows: one function.
#include "gloo/gloo_module.h"

#include "gloo/gloo_library.h"

namespace dtrun::collectives::gloo_backend {

extern "C" adapter::MessageLibrary* DTRUN_MAKE_GLOO_LIBRARY(const GroupOptions& options,
                                                            base::Deadline deadline) {
  return std::make_unique<GlooLibrary>(options, make_device(options), deadline).release();
}

static_assert(std::is_same_v<decltype(&DTRUN_MAKE_GLOO_LIBRARY), MakeGlooLibrary>);

}  // namespace dtrun::collectives::gloo_backend
