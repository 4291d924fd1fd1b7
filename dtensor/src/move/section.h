// Section: the part of the program that this thread is in; counters attribute collectives to it. A
// graph node keeps the section in which it was made, for its backward.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "dtrun/base/counted.h"

namespace dtrun::dtensor {

struct Section : base::Count {
  std::string path;  ///< "model.layers.0"
  /// Inside a module: the paths of all modules of the outermost one, by address, and the innermost
  /// one's path.
  std::shared_ptr<const std::map<const void*, std::string>> modules;
  std::string module_path;
};

/// Enters a section for its lifetime.
class StandingSection {
 public:
  explicit StandingSection(base::Counted<Section> section)
      : section_(std::move(section)), outer_(innermost_) {
    innermost_ = section_.get();
  }
  ~StandingSection() { innermost_ = outer_; }
  StandingSection(const StandingSection&) = delete;
  StandingSection& operator=(const StandingSection&) = delete;

  /// The innermost section; null: none.
  static Section* innermost() { return innermost_; }

 private:
  static constinit thread_local Section* innermost_;
  const base::Counted<Section> section_;
  Section* const outer_;
};

}  // namespace dtrun::dtensor
