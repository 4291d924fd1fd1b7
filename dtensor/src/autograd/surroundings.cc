#include "autograd/surroundings.h"

#include <utility>

#include "dtrun/base/check.h"

namespace dtrun::dtensor::surroundings {
namespace {
thread_local Standing all;
}  // namespace

void enter(std::shared_ptr<const Surrounding> surrounding) {
  all.push_back(std::move(surrounding));
}

void leave() {
  DT_CHECK(!all.empty());
  all.pop_back();
}

const Standing& standing() {
  return all;
}

Again::Again(Standing these) : before_(std::exchange(all, std::move(these))) {}
Again::~Again() {
  all = std::move(before_);
}

}  // namespace dtrun::dtensor::surroundings
