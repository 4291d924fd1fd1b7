#include "dtrun/base/dynamic_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "dtrun/base/check.h"

namespace dtrun::base {
namespace {

/// Where the loader looks for what the program itself asks for, its DT_RUNPATH among them.
std::vector<std::string> search_path_of_program() {
  void* const program = ::dlopen(nullptr, RTLD_NOW);
  Dl_serinfo size{};
  if (::dlinfo(program, RTLD_DI_SERINFOSIZE, &size) != 0) return {};
  const auto memory =
      std::make_unique<std::max_align_t[]>(size.dls_size / sizeof(std::max_align_t) + 1);
  auto* const list = reinterpret_cast<Dl_serinfo*>(memory.get());
  if (::dlinfo(program, RTLD_DI_SERINFOSIZE, list) != 0 ||
      ::dlinfo(program, RTLD_DI_SERINFO, list) != 0)
    return {};
  std::vector<std::string> folders;
  for (unsigned i = 0; i < list->dls_cnt; ++i) folders.emplace_back(list->dls_serpath[i].dls_name);
  return folders;
}

struct Opened {
  void* handle;
  std::string reason;  ///< where there is no handle
};

Opened open_file(const std::string& file, int flags) {
  void* const handle = ::dlopen(file.c_str(), flags);
  return {handle, handle == nullptr ? ::dlerror() : ""};
}

Opened open(const std::string& file, int flags) {
  Opened opened = open_file(file, flags);
  if (opened.handle != nullptr || file.find('/') != std::string::npos) return opened;
  // A sanitizer puts its own dlopen between, so that the loader looks where that library would, and
  // not where the program would.
  for (const std::string& folder : search_path_of_program()) {
    const std::string path = folder + "/" + file;
    if (::access(path.c_str(), R_OK) == 0) return open_file(path, flags);
  }
  return opened;
}

}  // namespace

DynamicLibrary::DynamicLibrary(const std::vector<std::string>& files, Visibility visibility) {
  const int scope = visibility == Visibility::global ? RTLD_GLOBAL : RTLD_LOCAL;
  for (const std::string& file : files) {
    Opened opened = open(file, RTLD_NOW | scope);
    handle_ = opened.handle;
    if (handle_ != nullptr) return;
    if (reason_.empty()) reason_ = std::move(opened.reason);
  }
}

void* DynamicLibrary::find(const char* name) const {
  DT_CHECK(opened());
  return ::dlsym(handle_, name);
}

}  // namespace dtrun::base
