// JoinedBackends: one job's ranks over each of several backends. The world is made over one of
// them, and the others' groups have the same ranks. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/contender.h"
#include "bench/group_contender.h"
#include "dtrun/collectives/register_backend.h"
#include "dtrun/runtime/worker.h"
#include "dtrun/tensor/host_allocator.h"

namespace dtrun::bench {

/// What a plugin defines, as `extern "C" void dtrun_register_backends(...)`. A plugin is a shared
/// library that registers backends of its own. It carries its own copy of what it uses of dtrun, so
/// it calls the program's register_backend(), which it is given.
using RegisterBackends = void (*)(decltype(collectives::register_backend)* register_backend);

/// Opens a plugin, and lets it register. It stays open until the process ends.
/// @throws base::Error kUsage for a file that is none; what its function throws
void load_plugin(const std::string& file);

class JoinedBackends {
 public:
  /// Collective over the job. @param names at least one @param machine as InitOptions::machine
  JoinedBackends(const std::vector<std::string>& names, const std::string& machine);

  /// In the order of the names; this owns them.
  std::vector<Contender*> contenders() const;
  /// As ProcessGroup::shared_memory(), of the backend cpu. @throws base::Error as that
  std::shared_ptr<tensors::HostAllocator> shared_memory() const;

 private:
  runtime::Worker worker_;
  std::vector<collectives::ProcessGroup> groups_;
  std::vector<std::unique_ptr<GroupContender>> contenders_;
};

}  // namespace dtrun::bench
