#include "onednn.h"

#include <optional>

#include "dtrun/base/dynamic_library.h"

namespace dtrun::tensors {
namespace {

std::optional<OneDnn> open_onednn() {
  const base::DynamicLibrary library({"libdnnl.so.2", "libdnnl.so.3"});
  OneDnn table{};
  const bool complete = library.opened() && library.find("dnnl_sgemm", table.sgemm) &&
                        library.find("omp_get_max_threads", table.max_threads) &&
                        library.find("omp_set_num_threads", table.set_threads);
  return complete ? std::optional(table) : std::nullopt;
}

}  // namespace

const OneDnn* onednn() {
  static const std::optional<OneDnn> opened = open_onednn();
  return opened ? &*opened : nullptr;
}

}  // namespace dtrun::tensors
