// Without libbacktrace only the symbols that a program exports are known, and no lines.
#include "code_map.h"

#include <dlfcn.h>

namespace dtrun::base {

CodeSymbol symbol_at(std::uintptr_t address) {
  Dl_info found{};
  if (::dladdr(reinterpret_cast<void*>(address), &found) == 0) return {};
  return {found.dli_sname, reinterpret_cast<std::uintptr_t>(found.dli_saddr)};
}

void lines_at(std::uintptr_t /*address*/, CodeLineVisitor& /*visitor*/) {}

}  // namespace dtrun::base
