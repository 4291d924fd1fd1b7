#include "registered_backends.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/collectives/register_backend.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;

namespace {

struct Registered {
  BackendFactory factory;
  BackendKind kind;
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, Registered, std::less<>> by_name;
};

Registry& registry() {
  static Registry all;
  return all;
}

[[noreturn]] void refuse_name(const std::string& name, std::string why, std::string remedy) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("cannot register backend '{}'", name),
              std::move(why), std::move(remedy));
}

bool is_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

}  // namespace

void register_backend(const std::string& name, BackendFactory factory, tensors::DeviceType device) {
  if (!is_name(name))
    refuse_name(name, "a name is made of a to z, 0 to 9, _ and -", "choose another name");
  if (!factory) refuse_name(name, "its factory is empty", "give a function that makes a Backend");
  for (const BackendKind& kind : backend_kinds())
    if (kind.name == name) refuse_name(name, "dtrun has one of that name", "choose another name");
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  const auto [place, is_new] = all.by_name.try_emplace(name);
  if (!is_new)
    refuse_name(name, "it is registered already",
                "register it once in the process, before its first group");
  Registered& registered = place->second;
  registered.factory = std::move(factory);
  registered.kind.name = place->first;
  registered.kind.device = device;
  registered.kind.factory = &registered.factory;
}

const BackendKind* registered_backend(std::string_view name) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.by_name.find(name);
  return found == all.by_name.end() ? nullptr : &found->second.kind;
}

std::vector<std::string> registered_backend_names() {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [name, registered] : all.by_name) names.push_back(name);
  return names;
}

std::unique_ptr<Backend> make_registered(const BackendKind& kind, const GroupOptions& options) {
  const std::string what =
      fmt::format("backend '{}' could not be made for group '{}'", kind.name, options.name);
  std::unique_ptr<Backend> backend;
  try {
    backend = (*kind.factory)(options);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", what, error.summary()), error.why(),
                error.remedy());
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kSystem, fmt::format("{}: {}", what, error.what()),
                "the function that was registered for it threw that", "look there");
  }
  if (!backend)
    throw Error(ErrorCode::kSystem, what, "the function that was registered for it returned none",
                "throw an Error that says why there can be none");
  if (backend->rank() != options.rank ||
      static_cast<std::size_t>(backend->size()) != options.global_ranks.size() ||
      backend->device_type() != kind.device)
    throw Error(
        ErrorCode::kInvalidArgument, what,
        fmt::format("it is rank {} of {}, and the group wants rank {} of {}, on the device "
                    "that it was registered for",
                    backend->rank(), backend->size(), options.rank, options.global_ranks.size()),
        "make it from the options that the function gets");
  return backend;
}

}  // namespace dtrun::collectives
