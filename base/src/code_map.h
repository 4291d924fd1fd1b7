// What stands at an address of this process's code: from line information (backtrace/), or from the
// symbols that a program exports (no_backtrace/). Thread-safe.
#pragma once

#include <cstdint>

namespace dtrun::base {

struct CodeSymbol {
  const char* name = nullptr;  ///< mangled; null: it has none
  std::uintptr_t start = 0;
};

CodeSymbol symbol_at(std::uintptr_t address);

class CodeLineVisitor {
 public:
  /// The innermost inlined function comes first. @returns false: the rest is not wanted
  virtual bool on_line(const char* file, int line) = 0;

 protected:
  ~CodeLineVisitor() = default;
};

/// Calls nothing where there is no line information. @param address within the instruction
void lines_at(std::uintptr_t address, CodeLineVisitor& visitor);

}  // namespace dtrun::base
