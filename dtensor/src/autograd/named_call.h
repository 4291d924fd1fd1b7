// named_call: runs an operator that is made of others under its own name. What they refuse is told
// as the call that the program made: its name, its arguments, and how these lie. Of nested ones the
// outermost counts; it is also the Cause of what they communicate. Costs a few writes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/tensor.h"
#include "move/cause.h"

namespace dtrun::dtensor {

/// A tensor, or a list of them, by the name that the caller knows.
class CallArgument {
 public:
  /// @param name a literal; "": the caller knows none
  CallArgument(const char* name, const Tensor& tensor)
      : CallArgument(name, {&tensor, 1}, Need::required) {}
  CallArgument(const char* name, const Tensors& list)
      : CallArgument(name, std::span<const Tensor>(list), Need::optional) {}
  /// An argument that may be left out.
  static CallArgument if_given(const char* name, const Tensor& tensor) {
    return {name, {&tensor, 1}, Need::optional};
  }

  const char* name() const { return name_; }
  std::span<const Tensor> tensors() const { return {first_, count_}; }
  bool is_missing() const { return need_ == Need::required && !first_->defined(); }

 private:
  enum class Need : std::uint8_t { required, optional };
  CallArgument(const char* name, std::span<const Tensor> tensors, Need need)
      : name_(name),
        first_(tensors.data()),
        count_(static_cast<std::uint32_t>(tensors.size())),
        need_(need) {}

  const char* name_;
  const Tensor* first_;
  std::uint32_t count_;
  Need need_;
};
using CallArguments = std::span<const CallArgument>;

/// Whether this thread is within a named call, and which.
class NamedCallScope {
 public:
  /// @param op a literal
  explicit NamedCallScope(std::string_view op) : cause_(Cause::of_call(op)) { ++depth_; }
  ~NamedCallScope() { --depth_; }
  NamedCallScope(const NamedCallScope&) = delete;
  NamedCallScope& operator=(const NamedCallScope&) = delete;
  static bool stands() { return depth_ > 0; }

 private:
  static constinit thread_local int depth_;
  const Cause cause_;
};

/// Rethrows the error that is being handled, told of this call. Within a named call, as it is.
[[noreturn]] void tell_named_call(std::string_view op, CallArguments arguments,
                                  const base::Error& error);
[[noreturn]] void refuse_missing(std::string_view op, const CallArgument& argument);

/// @param op a literal @throws Error kInvalidArgument also for a required tensor that is undefined
template <typename Body>
decltype(auto) named_call(std::string_view op, std::initializer_list<CallArgument> arguments,
                          Body&& body) {
  try {
    const NamedCallScope scope(op);
    for (const CallArgument& argument : arguments) {
      if (argument.is_missing()) [[unlikely]]
        refuse_missing(op, argument);
    }
    return body();
  } catch (const base::Error& error) {
    tell_named_call(op, {arguments.begin(), arguments.size()}, error);
  }
}

}  // namespace dtrun::dtensor
