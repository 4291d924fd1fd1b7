// make_backend: the one place where a backend's name becomes a backend.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/process_group.h"
#include "dtrun/collectives/register_backend.h"

namespace dtrun::collectives {

/// Nothing is in the way of such a backend.
std::optional<base::Error> no_obstacle();

/// What dtrun knows of a backend before one is made.
struct BackendKind {
  std::string_view name;
  tensors::DeviceType device = tensors::DeviceType::cpu;  ///< of the tensors that it takes
  /// Why it cannot be used here: kUnavailable, not built in, or no such device; nullopt: it can.
  std::optional<base::Error> (*obstacle)() = no_obstacle;
  /// Collective over the members. @throws Error why joining failed
  std::unique_ptr<Backend> (*make)(const GroupOptions& options) = nullptr;
  /// In place of make: of one that the program has registered.
  const BackendFactory* factory = nullptr;
};

/// dtrun's own, built in or not.
std::span<const BackendKind> backend_kinds();
/// One of them, or one that the program has registered. @throws Error kInvalidArgument for an
/// unknown name, with the list of those that are usable
const BackendKind& backend_kind(std::string_view name);
/// "cpu, nccl": the backends of those kinds that can be used here.
std::string usable_backends();

/// The backends of a group, one per device type.
struct BackendSet {
  std::unique_ptr<Backend> cpu;
  std::unique_ptr<Backend> cuda;
};
/// Collective over the members. @throws Error kInvalidArgument for a spec that cannot be read,
/// kUnavailable for a backend that is not built in or cannot be used here, both with the list of
/// those that can; or why joining failed
BackendSet make_backends(const GroupOptions& options);

// Where each backend begins: in its folder, or in no_<name>/, whichever is built.
std::unique_ptr<Backend> make_cpu_backend(const GroupOptions& options);
std::optional<base::Error> gloo_obstacle();
std::unique_ptr<Backend> make_gloo_backend(const GroupOptions& options);
std::optional<base::Error> mpi_obstacle();
std::unique_ptr<Backend> make_mpi_backend(const GroupOptions& options);
std::optional<base::Error> nccl_obstacle();
std::unique_ptr<Backend> make_nccl_backend(const GroupOptions& options);
std::optional<base::Error> staged_obstacle();
std::unique_ptr<Backend> make_staged_backend(const GroupOptions& options);

}  // namespace dtrun::collectives
