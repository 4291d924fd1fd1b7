#include "nn/module_section.h"

#include "dtrun/collectives/call_observer.h"
#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor::nn {
namespace {

/// What `path` has beyond `outer`; all of it where it lies elsewhere.
std::string path_below(const std::string& outer, const std::string& path) {
  if (path == outer) return "";
  return !outer.empty() && path.starts_with(outer + ".") ? path.substr(outer.size() + 1) : path;
}

std::string dotted(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second : first + "." + second;
}

base::Counted<Section> section_of(Module& module) {
  const Section* const around = StandingSection::innermost();
  base::Counted<Section> section(new Section);
  if (around != nullptr && around->modules != nullptr) {
    const auto known = around->modules->find(&module);
    if (known != around->modules->end()) {
      section->modules = around->modules;
      section->module_path = known->second;
      section->path = dotted(around->path, path_below(around->module_path, known->second));
      return section;
    }
  }
  auto modules = std::make_shared<std::map<const void*, std::string>>();
  for (const auto& [path, within] : module.named_modules()) modules->emplace(within, path);
  section->modules = std::move(modules);
  section->path = dotted(around == nullptr ? "" : around->path, module.name());
  return section;
}

}  // namespace

ModuleSection::ModuleSection(Module& module) {
  if (collectives::CallObserver::innermost() == nullptr) return;
  section_.emplace(section_of(module));
  span_.emplace(Span::Kind::module, StandingSection::innermost()->path);
}

}  // namespace dtrun::dtensor::nn
