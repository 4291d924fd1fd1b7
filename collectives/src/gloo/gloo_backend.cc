// Backend 'gloo': groups of ranks that talk through libgloo over TCP.
#include "adapter/adapter_backend.h"
#include "gloo/gloo_library.h"
#include "make_backend.h"

namespace dtrun::collectives {

std::optional<base::Error> gloo_obstacle() {
  return std::nullopt;
}

std::unique_ptr<Backend> make_gloo_backend(const GroupOptions& options) {
  const base::Deadline deadline = base::Deadline::after(options.timeout);
  std::vector<Card> members = adapter::meet_members(options, deadline);
  auto library = std::make_unique<gloo_backend::GlooLibrary>(
      options, gloo_backend::make_device(options), deadline);
  return std::make_unique<adapter::AdapterBackend>(std::move(library), options, std::move(members),
                                                   std::make_shared<adapter::RankDisplay>(options));
}

}  // namespace dtrun::collectives
