// Cause: on whose behalf this thread moves data. Of nested causes the outermost is the one that the
// user called, and the one that is told. Costs a few writes.
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

  /// @param op outlives the cause
  Cause(std::string_view op, Wish wish, const base::CallSite& site)
      : op_(op), wish_(wish), site_(site), outer_(innermost_) {
    innermost_ = this;
  }
  /// Of a call whose place in the program is not known.
  Cause(std::string_view op, Wish wish) : Cause(op, wish, base::CallSite::current(op.data(), 0)) {}
  /// For an operand of an operator.
  Cause(std::string_view op, std::size_t argument)
      : Cause(op, Wish::implied, base::CallSite::current(op.data(), 0)) {
    argument_ = static_cast<int>(argument);
  }
  /// For an operand of the call that stands.
  static Cause of_operand(std::size_t argument) {
    const Cause* const call = outermost();
    return {call == nullptr ? std::string_view("a call") : call->op_, argument};
  }
  static Cause backward_of(std::string_view op) { return Cause(op, Way::backward); }
  /// Of an operator that is made of others. It stands where no other cause does, so that what they
  /// need is told as its own.
  static Cause of_call(std::string_view op) { return Cause(op, Place::outermost_only); }
  /// Of what a layer around modules does, whatever it is within: it is told in place of that.
  static Cause of_layer(std::string_view op, const base::CallSite& site) {
    return Cause(op, outermost(), site);
  }
  ~Cause() { innermost_ = outer_; }
  Cause(const Cause&) = delete;
  Cause& operator=(const Cause&) = delete;

  /// The current cause; null: none.
  static const Cause* outermost() {
    const Cause* cause = innermost_;
    while (cause != nullptr && cause->outer_ != nullptr && !cause->is_layers_)
      cause = cause->outer_;
    return cause;
  }

  /// Where the user's program asked for it, for errors that name both sides.
  static base::CallSite site_of_call() {
    const Cause* const cause = outermost();
    return cause == nullptr ? base::CallSite::current("a redistribution", 0) : cause->site();
  }

  static const Cause* innermost() { return innermost_; }
  /// The innermost that is for an operand; null: none is.
  static const Cause* operand() {
    const Cause* cause = innermost_;
    while (cause != nullptr && cause->argument_ < 0) cause = cause->outer_;
    return cause;
  }

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
  /// Of an operand: "argument 1", or of another call than the one that is told, "argument 1 of
  /// matmul".
  std::string argument_of(const Cause& told) const {
    return "argument " + std::to_string(argument_ + 1) +
           (op_ == told.op_ ? "" : " of " + std::string(op_));
  }

 private:
  enum class Place : std::uint8_t { outermost_only };
  Cause(std::string_view op, Place)
      : op_(op),
        wish_(Wish::implied),
        site_(base::CallSite::current(op.data(), 0)),
        outer_(innermost_) {
    if (outer_ == nullptr) innermost_ = this;
  }
  Cause(std::string_view op, const Cause* within, const base::CallSite& site)
      : Cause(op, Wish::asked, site) {
    is_layers_ = true;
    if (within != nullptr) way_ = within->way_;
  }
  Cause(std::string_view op, Way way)
      : Cause(op, Wish::asked, base::CallSite::current(op.data(), 0)) {
    way_ = way;
  }

  static constinit thread_local const Cause* innermost_;
  std::string_view op_;
  Wish wish_;
  Way way_ = Way::forward;
  bool is_layers_ = false;
  int argument_ = -1;
  base::CallSite site_;
  const Cause* const outer_;
};

}  // namespace dtrun::dtensor
