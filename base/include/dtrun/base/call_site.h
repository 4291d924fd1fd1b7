// CallSite: the place in a program where a call stands, as a parameter's default:
// void f(CallSite site = CallSite::current()). What std::source_location is, which clang knows from
// version 16 on only. A value.
#pragma once

#include <cstdint>

namespace dtrun::base {

class CallSite {
 public:
  static constexpr CallSite current(const char* file = __builtin_FILE(),
                                    std::uint32_t line = __builtin_LINE()) {
    CallSite site;
    site.file_ = file;
    site.line_ = line;
    return site;
  }

  constexpr const char* file_name() const { return file_; }
  /// 0: no place.
  constexpr std::uint32_t line() const { return line_; }

 private:
  const char* file_ = "";
  std::uint32_t line_ = 0;
};

}  // namespace dtrun::base
