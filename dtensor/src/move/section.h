// Section: the part of the program that this thread is in, while one stands: what counters note
// collectives under. A node of the graph keeps the one that it was made in, for its way back.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "dtrun/base/counted.h"

namespace dtrun::dtensor {

struct Section : base::Count {
  std::string path;  ///< "model.layers.0"
  /// Where a module stands: the paths of all that the outermost one has, by their addresses, and
  /// the innermost one's.
  std::shared_ptr<const std::map<const void*, std::string>> modules;
  std::string module_path;
};

/// Makes a section stand.
class StandingSection {
 public:
  explicit StandingSection(base::Counted<Section> section)
      : section_(std::move(section)), outer_(innermost_) {
    innermost_ = section_.get();
  }
  ~StandingSection() { innermost_ = outer_; }
  StandingSection(const StandingSection&) = delete;
  StandingSection& operator=(const StandingSection&) = delete;

  /// Null: none stands.
  static Section* innermost() { return innermost_; }

 private:
  static constinit thread_local Section* innermost_;
  const base::Counted<Section> section_;
  Section* const outer_;
};

}  // namespace dtrun::dtensor
