#include "parallel/module_names.h"

#include <fnmatch.h>

#include <string_view>

#include "dtrun/base/error.h"
#include "nn/name_list.h"

namespace dtrun::dtensor {
namespace {

/// What stands before the first dot, which goes, too.
std::string take_name(std::string_view& path) {
  const std::size_t dot = path.find('.');
  const std::string name(path.substr(0, dot));
  path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  return name;
}

bool match(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) return path.empty();
  const std::string name = take_name(pattern);
  if (name == "**") {
    while (!match(pattern, path)) {
      if (path.empty()) return false;
      take_name(path);
    }
    return true;
  }
  if (path.empty() || ::fnmatch(name.c_str(), take_name(path).c_str(), 0) != 0) return false;
  return match(pattern, path);
}

}  // namespace

bool matches(const std::string& pattern, const std::string& path) {
  return match(pattern, path);
}

std::vector<std::pair<std::string, nn::Module*>> matching_modules(const char* call,
                                                                  nn::Module& module,
                                                                  const std::string& pattern) {
  std::vector<std::pair<std::string, nn::Module*>> found;
  std::vector<std::string> paths;
  for (const auto& [path, within] : module.named_modules()) {
    if (matches(pattern, path)) found.emplace_back(path, within);
    if (!path.empty()) paths.push_back(path);
  }
  if (!found.empty()) return found;
  throw base::Error(
      base::ErrorCode::kNotFound,
      std::string(call) + " of " + module.name() + ": no module matches \"" + pattern + "\"",
      "it has " + nn::name_list(paths),
      "`*` stands for one name, `**` for any number of them: \"**.up\"");
}

}  // namespace dtrun::dtensor
