// DynamicLibrary: a shared library that is opened when it is first needed, so that programs start
// without it. Never closed: what was found in it is valid to the end of the process. Copies share
// the library. Thread-safe.
#pragma once

#include <string>
#include <vector>

namespace dtrun::base {

class DynamicLibrary {
 public:
  /// global: libraries that are opened later see its names, as if it had been linked.
  enum class Visibility { local, global };

  /// Opens the first of the files that the loader can open; a bare name is looked for as the loader
  /// does.
  explicit DynamicLibrary(const std::vector<std::string>& files,
                          Visibility visibility = Visibility::local);

  bool opened() const { return handle_ != nullptr; }
  /// Why the first of the files could not be opened; empty where it could.
  const std::string& reason() const { return reason_; }
  /// A function's or variable's address; null where the library has no such name.
  void* find(const char* name) const;
  /// Sets `function` to the function of that name. @return false: the library has none
  template <typename Function>
  [[nodiscard]] bool find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(find(name));
    return function != nullptr;
  }

 private:
  void* handle_ = nullptr;
  std::string reason_;
};

}  // namespace dtrun::base
