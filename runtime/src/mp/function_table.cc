#include "function_table.h"

#include <fmt/core.h>

#include <mutex>
#include <vector>

#include "exception_text.h"

namespace dtrun::mp {
namespace {

using base::Error;
using base::ErrorCode;

struct Table {
  std::mutex lock;
  std::vector<FunctionEntry> entries;
};

// Made by whoever comes first among the static initializers; never destroyed, since exit handlers
// may still start processes.
Table& table() {
  static Table* const the_table = new Table;
  return *the_table;
}

void require_unique_name(const FunctionEntry& entry, const std::vector<FunctionEntry>& entries) {
  for (const FunctionEntry& other : entries)
    if (other.name == entry.name && other.function != entry.function)
      throw Error(
          ErrorCode::kUsage, fmt::format("two functions are registered as '{}'", entry.name),
          fmt::format("one at {}, the other at {}; a new process has only the name to go by",
                      describe_site(entry.site), describe_site(other.site)),
          "give one of them another name, or register both with their namespaces: "
          "DTRUN_MP_FUNCTION(one::name)");
}

}  // namespace

std::string describe_site(const Site& site) {
  const std::string_view path = site.file_name();
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), site.line());
}

Registration::Registration(const char* name, void (*function)(), Run run, Site site) {
  const std::lock_guard held(table().lock);
  table().entries.push_back({name, function, run, site});
}

FunctionEntry find_function(void (*function)(), const std::string& type, const Site& site) {
  const std::lock_guard held(table().lock);
  for (const FunctionEntry& entry : table().entries) {
    if (entry.function != function || function == nullptr) continue;
    require_unique_name(entry, table().entries);
    return entry;
  }
  const std::string what = runtime::readable_type(type.c_str());
  if (function == nullptr)
    throw Error(
        ErrorCode::kUsage,
        fmt::format("what shall be run at {} ({}) is no function", describe_site(site), what),
        "a new process finds what it shall run by its name, and only functions have one",
        "write a function and below it DTRUN_MP_FUNCTION(its_name); or use the start method "
        "fork, which runs anything that can be called");
  throw Error(ErrorCode::kUsage,
              fmt::format("the function that shall be run at {} (a {}) is not registered",
                          describe_site(site), what),
              "a new process finds what it shall run by its name",
              "write below the function: DTRUN_MP_FUNCTION(its_name);");
}

FunctionEntry find_function(const std::string& name) {
  const std::lock_guard held(table().lock);
  for (const FunctionEntry& entry : table().entries)
    if (entry.name == name) return entry;
  throw Error(ErrorCode::kNotFound, fmt::format("no function is registered as '{}'", name),
              "the process that asked for it is an instance of this program, and had it",
              "register functions at namespace scope, not in a library that is loaded later");
}

}  // namespace dtrun::mp
