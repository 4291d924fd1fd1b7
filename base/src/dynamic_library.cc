#include "dtrun/base/dynamic_library.h"

#include <dlfcn.h>

#include "dtrun/base/check.h"

namespace dtrun::base {

DynamicLibrary::DynamicLibrary(const std::vector<std::string>& files, Visibility visibility) {
  const int scope = visibility == Visibility::global ? RTLD_GLOBAL : RTLD_LOCAL;
  for (const std::string& file : files) {
    handle_ = ::dlopen(file.c_str(), RTLD_NOW | scope);
    if (handle_ != nullptr) return;
    if (reason_.empty()) reason_ = ::dlerror();
  }
}

void* DynamicLibrary::find(const char* name) const {
  DT_CHECK(opened());
  return ::dlsym(handle_, name);
}

}  // namespace dtrun::base
