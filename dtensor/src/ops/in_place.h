// The steps of an in-place form: the operator's new tensor, written over the old elements; in the
// graph the tensor becomes what the operator made. Where no gradient is wanted and all lie alike,
// the kernel writes the elements itself: so do the steps of optimizers.
#pragma once

#include <initializer_list>
#include <optional>
#include <type_traits>
#include <utility>

#include "autograd/named_call.h"
#include "autograd/node.h"
#include "dispatch/result_wish.h"
#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor::in_place_steps {

/// What an operator reads besides the tensor that it writes.
using Others = std::initializer_list<const Tensor*>;

/// @throws Error kInvalidArgument for an undefined one
void require_defined(const char* op, const Tensor& target, Others others);
/// Whether this rank has elements of it, which a rehearsal leaves as they are.
bool is_to_be_written(const Tensor& target);
/// @throws Error kInvalidArgument where the change would make a gradient wrong
void check_writable(const char* op, const Tensor& target);
/// A value that wants a gradient is about to be written to elements that others show as well.
void check_not_shared(const char* op, const Tensor& target, const Tensor& value);
bool needs_graph(const Tensor& target, Others others);
/// The numbers of `target` as they are, for an operator whose gradient may want them.
Tensor as_it_was(const Tensor& target, Others others);
/// Every rank's part of the result comes from its parts of all of them, is of their dtype, and
/// nobody asks how it came about: so the kernel may write it where it belongs.
bool is_in_step(const Tensor& target, Others others);
void check_result(const char* op, const Tensor& target, const Tensor& result);
/// The value where the target lies, in the graph.
Tensor lying_as_target(const Tensor& target, const Tensor& value);
const Tensor& assign(const Tensor& target, const Tensor& result);
/// An operand that is the target itself is read as it was.
const Tensor& unless_same(const Tensor& target, const Tensor& old, const Tensor& other);

/// Rethrows the error that is being handled, told of this call.
[[noreturn]] void tell_in_place(const char* op, const Tensor& target, Others others,
                                const base::Error& error);

/// Calls the operation, whose result is to lie as the target does.
template <typename Operation>
Tensor wishing_for(const Tensor& target, Operation operation) {
  std::optional<ResultWish> wish;
  if (target.is_distributed())
    wish = ResultWish{target.device_mesh(), target.placements(), ResultWish::Of::call_in_place};
  const ResultWishScope scope(std::move(wish));
  return operation();
}

/// @param operation of the tensor as it was and the others @param kernel of the parts, in place; it
/// is called where the parts are enough; nullptr: there is none
template <typename Operation, typename Kernel>
const Tensor& write_in_place(const char* name, const Tensor& target, Others others,
                             Operation operation, Kernel kernel) {
  require_defined(name, target, others);
  check_writable(name, target);
  for (const Tensor* other : others) check_not_shared(name, target, *other);
  if constexpr (!std::is_null_pointer_v<Kernel>) {
    if (is_in_step(target, others)) {
      if (is_to_be_written(target)) kernel(target.local());
      return target;
    }
  }
  const Tensor old = as_it_was(target, others);
  const Tensor result = wishing_for(target, [&] { return operation(old); });
  check_result(name, target, result);
  return assign(target, result);
}

/// The same, whose errors are told as the form's, not as the operation's.
template <typename Operation, typename Kernel>
const Tensor& in_place(const char* name, const Tensor& target, Others others, Operation operation,
                       Kernel kernel) {
  try {
    const NamedCallScope scope(name);
    return write_in_place(name, target, others, operation, kernel);
  } catch (const base::Error& error) {
    tell_in_place(name, target, others, error);
  }
}

}  // namespace dtrun::dtensor::in_place_steps
