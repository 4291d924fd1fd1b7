// Cause: on whose behalf this thread moves data. Of nested causes the outermost is the one that the
// user called. Costs two writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dtrun/base/call_site.h"

namespace dtrun::dtensor {

class Cause {
 public:
  enum class Wish : std::uint8_t {
    asked,    ///< the user said it: redistribute(), full_tensor(), backward()
    implied,  ///< an operator needs it
  };
  enum class Way : std::uint8_t { forward, backward };

  /// @param op a literal
  Cause(std::string_view op, Wish wish, const base::CallSite& site = {})
      : op_(op), wish_(wish), site_(site), outer_(innermost_) {
    innermost_ = this;
  }
  /// For an operand of an operator.
  Cause(std::string_view op, std::size_t argument)
      : Cause(op, Wish::implied, base::CallSite::current(op.data(), 0)) {
    argument_ = static_cast<int>(argument);
  }
  static Cause backward_of(std::string_view op) { return Cause(op, Way::backward); }
  ~Cause() { innermost_ = outer_; }
  Cause(const Cause&) = delete;
  Cause& operator=(const Cause&) = delete;

  /// The current cause; null: none.
  static const Cause* outermost() {
    const Cause* cause = innermost_;
    while (cause != nullptr && cause->outer_ != nullptr) cause = cause->outer_;
    return cause;
  }

  /// Where the user's program asked for it, for errors that name both sides.
  static base::CallSite site_of_call() {
    const Cause* const cause = outermost();
    return cause == nullptr ? base::CallSite::current("a redistribution", 0) : cause->site();
  }

  static const Cause* innermost() { return innermost_; }

  std::string_view op() const { return op_; }
  /// Index of the operand; -1: none in particular.
  int argument() const { return argument_; }
  Way way() const { return way_; }
  bool is_asked() const { return wish_ == Wish::asked; }
  const base::CallSite& site() const { return site_; }
  /// "matmul", "matmul, backward".
  std::string to_string() const {
    return std::string(op_) + (way_ == Way::backward ? ", backward" : "");
  }

 private:
  Cause(std::string_view op, Way way)
      : Cause(op, Wish::asked, base::CallSite::current(op.data(), 0)) {
    way_ = way;
  }

  static constinit thread_local const Cause* innermost_;
  std::string_view op_;
  Wish wish_;
  Way way_ = Way::forward;
  int argument_ = -1;
  base::CallSite site_;
  const Cause* const outer_;
};

}  // namespace dtrun::dtensor
