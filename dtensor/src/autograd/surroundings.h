// Surroundings: what stands around operations of this thread, and has to stand around them again
// where checkpoint() computes them a second time, outside of the call that put it there.
#pragma once

#include <memory>
#include <vector>

namespace dtrun::dtensor {

/// One of them; who looks for its own kind finds it by dynamic_cast.
struct Surrounding {
  virtual ~Surrounding() = default;
};

namespace surroundings {

using Standing = std::vector<std::shared_ptr<const Surrounding>>;

void enter(std::shared_ptr<const Surrounding> surrounding);
/// The one that was entered last.
void leave();
/// From the outermost to the innermost.
const Standing& standing();

/// While it lives, these stand in place of those that do.
class Again {
 public:
  explicit Again(Standing these);
  ~Again();
  Again(const Again&) = delete;
  Again& operator=(const Again&) = delete;

 private:
  Standing before_;
};

}  // namespace surroundings
}  // namespace dtrun::dtensor
