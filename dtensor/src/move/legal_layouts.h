// LegalLayouts: while one stands, it can tell how the operands of the operator that is being called
// may lie. Strict mode asks it, so that its error names the choices. Costs two writes.
#pragma once

#include <string>

namespace dtrun::dtensor {

class LegalLayouts {
 public:
  LegalLayouts() : outer_(innermost_) { innermost_ = this; }
  virtual ~LegalLayouts() { innermost_ = outer_; }
  LegalLayouts(const LegalLayouts&) = delete;
  LegalLayouts& operator=(const LegalLayouts&) = delete;

  /// Of the operator and those of its legal layouts that cost least to come to, the cheapest first:
  /// "matmul takes [R] and [S(1)] for 4.0 us, [S(1)] and [S(0)] for 4.2 us".
  virtual std::string nearest() const = 0;
  /// Of this thread's call, not of those that it is made of; null: no operator is being called.
  static const LegalLayouts* outermost() {
    const LegalLayouts* layouts = innermost_;
    while (layouts != nullptr && layouts->outer_ != nullptr) layouts = layouts->outer_;
    return layouts;
  }

 private:
  static constinit thread_local const LegalLayouts* innermost_;
  const LegalLayouts* const outer_;
};

}  // namespace dtrun::dtensor
