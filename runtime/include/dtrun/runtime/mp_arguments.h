// What can be sent to a function in another process, and how: by value, as bytes. A fresh image is
// the same program, so the bytes are those of memory. Part of mp.h; nothing here keeps state.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::mp {

/// The arguments of a call, kept as values: made by args().
template <typename... T>
struct Arguments {
  std::tuple<T...> values;
};

/// Text literals are kept as std::string.
template <typename T>
using Kept = std::conditional_t<std::is_convertible_v<T, const char*>, std::string, T>;

template <typename... T>
Arguments<Kept<std::decay_t<T>>...> args(T&&... values) {
  return {{Kept<std::decay_t<T>>(std::forward<T>(values))...}};
}

namespace wire {

template <typename T>
inline constexpr bool kSendable = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <>
inline constexpr bool kSendable<std::string> = true;
template <>
inline constexpr bool kSendable<dtensor::Tensor> = true;
template <typename T>
inline constexpr bool kSendable<std::vector<T>> = kSendable<T>;
template <typename T>
inline constexpr bool kSendable<std::optional<T>> = kSendable<T>;
template <typename A, typename B>
inline constexpr bool kSendable<std::pair<A, B>> = kSendable<A>&& kSendable<B>;

/// A vector of them is one block of memory, unlike one of bool.
template <typename T>
inline constexpr bool kFlat = (std::is_arithmetic_v<T> ||
                               std::is_enum_v<T>)&&!std::is_same_v<T, bool>;

/// Takes an encoded text apart, from the front.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  /// DT_CHECKs that there are as many.
  std::string_view take(std::size_t bytes);
  std::size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

template <typename T>
requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put(std::string& out, const std::string& text);
/// Its elements, shape and dtype, no gradient; a CUDA tensor travels through the memory of the
/// host.
/// @throws Error kInvalidArgument for a distributed one, whose mesh is this job's
void put(std::string& out, const dtensor::Tensor& tensor);
template <typename T>
void put(std::string& out, const std::vector<T>& list);
template <typename T>
void put(std::string& out, const std::optional<T>& value);
template <typename A, typename B>
void put(std::string& out, const std::pair<A, B>& pair);

template <typename T>
void put(std::string& out, const std::vector<T>& list) {
  put(out, list.size());
  if constexpr (kFlat<T>)
    out.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T));
  else
    for (std::size_t i = 0; i < list.size(); ++i) put(out, static_cast<const T&>(list[i]));
}
template <typename T>
void put(std::string& out, const std::optional<T>& value) {
  put(out, value.has_value());
  if (value) put(out, *value);
}
template <typename A, typename B>
void put(std::string& out, const std::pair<A, B>& pair) {
  put(out, pair.first);
  put(out, pair.second);
}

template <typename T>
requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void get(Reader& reader, T& value) {
  std::memcpy(&value, reader.take(sizeof value).data(), sizeof value);
}
void get(Reader& reader, std::string& text);
void get(Reader& reader, dtensor::Tensor& tensor);
template <typename T>
void get(Reader& reader, std::vector<T>& list);
template <typename T>
void get(Reader& reader, std::optional<T>& value);
template <typename A, typename B>
void get(Reader& reader, std::pair<A, B>& pair);

template <typename T>
void get(Reader& reader, std::vector<T>& list) {
  std::size_t size = 0;
  get(reader, size);
  if constexpr (kFlat<T>) {
    const std::string_view bytes = reader.take(size * sizeof(T));
    list.resize(size);
    if (size != 0) std::memcpy(list.data(), bytes.data(), bytes.size());
  } else {
    list.clear();
    for (std::size_t i = 0; i < size; ++i) {
      T value{};
      get(reader, value);
      list.push_back(std::move(value));
    }
  }
}
template <typename T>
void get(Reader& reader, std::optional<T>& value) {
  bool present = false;
  get(reader, present);
  if (present) get(reader, value.emplace());
}
template <typename A, typename B>
void get(Reader& reader, std::pair<A, B>& pair) {
  get(reader, pair.first);
  get(reader, pair.second);
}

/// How a parameter's value is kept on its way: `const std::string&` and `const char*` as a string.
template <typename Parameter>
using Stored = Kept<std::decay_t<Parameter>>;

/// No conversion that silently loses something: a bool from a bool only, no integer from a
/// fraction. converted() checks whether an integer fits.
template <typename Target, typename Given>
constexpr bool accepts() {
  if constexpr (std::is_same_v<Target, bool> || std::is_enum_v<Target>)
    return std::is_same_v<Target, Given>;
  else if constexpr (std::is_arithmetic_v<Target>)
    return std::is_arithmetic_v<Given> && !std::is_same_v<Given, bool> &&
           (std::is_floating_point_v<Target> || !std::is_floating_point_v<Given>);
  else
    return std::is_convertible_v<Given, Target>;
}

[[noreturn]] void reject_number(const std::string& number, const char* mangled_type);

template <typename T>
inline constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

/// @throws Error kInvalidArgument for an integer that the target cannot hold
template <typename Target, typename Given>
Target converted(Given value) {
  if constexpr (kIsInteger<Target> && kIsInteger<Given>) {
    const auto target = static_cast<Target>(value);
    bool fits = static_cast<Given>(target) == value;
    if constexpr (std::is_signed_v<Given> && !std::is_signed_v<Target>) fits = fits && value >= 0;
    if constexpr (!std::is_signed_v<Given> && std::is_signed_v<Target>) fits = fits && target >= 0;
    if (!fits) reject_number(std::to_string(value), typeid(Target).name());
    return target;
  } else {
    return static_cast<Target>(std::move(value));
  }
}

template <typename Parameter>
decltype(auto) passed(Stored<Parameter>& value) {
  if constexpr (std::is_pointer_v<std::decay_t<Parameter>>)
    return value.c_str();
  else
    return std::move(value);
}

/// Whether a value kept on the way can be handed to the parameter: not to `T&`.
template <typename Parameter>
inline constexpr bool kPassable =
    std::is_convertible_v<decltype(passed<Parameter>(std::declval<Stored<Parameter>&>())),
                          Parameter>;

}  // namespace wire
}  // namespace dtrun::mp
