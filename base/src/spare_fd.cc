#include "dtrun/base/spare_fd.h"

#include <sys/eventfd.h>

#include "dtrun/base/error.h"

namespace dtrun::base {

SpareFd::SpareFd() : fd_(make()) {
  if (!fd_) throw system_error("keep a spare descriptor");
}

UniqueFd SpareFd::make() {
  return UniqueFd(::eventfd(0, EFD_CLOEXEC));
}

}  // namespace dtrun::base
