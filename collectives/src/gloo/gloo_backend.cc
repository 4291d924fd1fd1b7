// Backend 'gloo': groups of ranks that talk through libgloo over TCP.
#include <fmt/core.h>

#include "adapter/adapter_backend.h"
#include "dtrun/base/dynamic_library.h"
#include "gloo/gloo_module.h"
#include "make_backend.h"

namespace dtrun::collectives {

using base::DynamicLibrary;
using base::Error;
using base::ErrorCode;

namespace gloo_backend {

#define DTRUN_TEXT_OF(name) #name
#define DTRUN_TEXT(name) DTRUN_TEXT_OF(name)

MakeGlooLibrary open_gloo_module(const std::vector<std::string>& files) {
  const char* const summary = "backend 'gloo' cannot be used here: its module cannot be opened";
  const DynamicLibrary module(files);
  if (!module.opened())
    throw Error(ErrorCode::kUnavailable, summary, module.reason(),
                fmt::format("install libgloo (libgloo0), or name the folders of libgloo and of {} "
                            "in LD_LIBRARY_PATH",
                            files.front()));
  MakeGlooLibrary make = nullptr;
  if (!module.find(DTRUN_TEXT(DTRUN_MAKE_GLOO_LIBRARY), make))
    throw Error(ErrorCode::kUnavailable, summary,
                fmt::format("{} is of another version than this program", files.front()),
                "build the program with the dtrun that is installed");
  return make;
}

namespace {

MakeGlooLibrary gloo_module() {
  // Where the program was linked to look (DT_RUNPATH), or where the machine's libraries are.
  static const MakeGlooLibrary opened = open_gloo_module({"libdtrun-gloo.so"});
  return opened;
}

}  // namespace
}  // namespace gloo_backend

std::optional<Error> gloo_obstacle() {
  try {
    gloo_backend::gloo_module();
  } catch (const Error& obstacle) {
    return obstacle;
  }
  return std::nullopt;
}

std::unique_ptr<Backend> make_gloo_backend(const GroupOptions& options) {
  const base::Deadline deadline = options.joining_deadline();
  std::vector<Card> members = adapter::meet_members(options, deadline);
  std::unique_ptr<adapter::MessageLibrary> library(gloo_backend::gloo_module()(options, deadline));
  return std::make_unique<adapter::AdapterBackend>(std::move(library), options, std::move(members));
}

}  // namespace dtrun::collectives
