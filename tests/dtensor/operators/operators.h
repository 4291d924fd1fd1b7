// The operators by the names that the vectors give them, and how each is called with what a case
// says.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor::vectors {

/// The inputs and arguments of a case.
class Call {
 public:
  Call(const test::VectorCase& item, Tensors inputs)
      : args_(item.contains("args") ? item.at("args").as_object() : boost::json::object()),
        inputs_(std::move(inputs)) {}

  const Tensor& in(std::size_t i) const { return inputs_.at(i); }
  const Tensors& all() const { return inputs_; }
  bool has(const char* name) const { return args_.contains(name) && !args_.at(name).is_null(); }
  bool is_list(const char* name) const { return args_.at(name).is_array(); }
  std::int64_t integer(const char* name, std::int64_t otherwise = 0) const {
    return has(name) ? args_.at(name).to_number<std::int64_t>() : otherwise;
  }
  int dim(const char* name = "dim") const { return static_cast<int>(integer(name)); }
  /// A number as it is written: 2 or 2.0.
  Scalar number(const char* name) const {
    const boost::json::value& value = args_.at(name);
    if (value.is_bool()) return value.as_bool();
    if (value.is_int64()) return value.as_int64();
    return value.is_string() ? test::numbers_of(boost::json::array{value})[0]
                             : value.to_number<double>();
  }
  std::optional<Scalar> number_or_none(const char* name) const {
    return has(name) ? std::optional(number(name)) : std::nullopt;
  }
  std::string text(const char* name) const { return test::text_of(args_.at(name)); }
  bool flag(const char* name) const { return has(name) && args_.at(name).as_bool(); }
  Shape sizes(const char* name) const { return test::sizes_of(args_.at(name)); }
  /// One dim, several, or none.
  std::vector<int> dims(const char* name = "dim") const {
    if (!has(name)) return {};
    const boost::json::value& value = args_.at(name);
    return value.is_array() ? test::ints_of(value) : std::vector<int>{dim(name)};
  }

 private:
  boost::json::object args_;
  Tensors inputs_;
};

using Operator = std::function<Tensors(const Call&)>;

using Operators = std::map<std::string, Operator>;

inline Operator of_one(Tensor (*op)(const Tensor&)) {
  return [op](const Call& c) -> Tensors { return {op(c.in(0))}; };
}
inline Operator of_two(Tensor (*op)(const Tensor&, const Tensor&)) {
  return [op](const Call& c) -> Tensors { return {op(c.in(0), c.in(1))}; };
}
inline Operator with_number(Tensor (*op)(const Tensor&, Scalar)) {
  return [op](const Call& c) -> Tensors { return {op(c.in(0), c.number("other"))}; };
}
inline Operator number_with(Tensor (*op)(Scalar, const Tensor&)) {
  return [op](const Call& c) -> Tensors { return {op(c.number("other"), c.in(0))}; };
}

void add_pointwise(Operators& table);
void add_in_place(Operators& table);
void add_reductions(Operators& table);
void add_views(Operators& table);
void add_products(Operators& table);
void add_index(Operators& table);
void add_rows(Operators& table);

}  // namespace dtrun::dtensor::vectors
