// FormatArgument: one value on its way into a line of print(). A value with a to_string() becomes
// its text here; numbers stay numbers, so that their format can be applied.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace dtrun::runtime {

using FormatArgument =
    std::variant<double, std::int64_t, std::uint64_t, bool, char, const void*, std::string>;

template <typename T>
concept HasToString = requires(const T& value) {
  { value.to_string() } -> std::convertible_to<std::string_view>;
};
/// A function to_string beside the type, as that of DType.
template <typename T>
concept HasToStringBeside = !std::is_arithmetic_v<T> && requires(const T& value) {
  { to_string(value) } -> std::convertible_to<std::string_view>;
};
template <typename T>
concept IsPointer =
    std::same_as<T, void*> || std::same_as<T, const void*> || std::same_as<T, std::nullptr_t>;

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

/// What a type becomes; void: it cannot be printed.
template <typename T>
consteval auto formatted_type() {
  if constexpr (HasToString<T> || HasToStringBeside<T> || IsVector<T>::value) {
    return std::type_identity<std::string>();
  } else if constexpr (IsPointer<T>) {
    return std::type_identity<const void*>();
  } else if constexpr (std::convertible_to<const T&, std::string_view>) {
    return std::type_identity<std::string>();
  } else if constexpr (std::same_as<T, bool> || std::same_as<T, char>) {
    return std::type_identity<T>();
  } else if constexpr (std::floating_point<T>) {
    return std::type_identity<double>();
  } else if constexpr (std::signed_integral<T>) {
    return std::type_identity<std::int64_t>();
  } else if constexpr (std::unsigned_integral<T>) {
    return std::type_identity<std::uint64_t>();
  } else {
    return std::type_identity<void>();
  }
}
template <typename T>
using FormattedType = typename decltype(formatted_type<T>())::type;

/// As "{}" writes it.
std::string default_text(const FormatArgument& argument);

template <typename T>
FormatArgument format_argument(const T& value) {
  using Formatted = FormattedType<T>;
  if constexpr (HasToString<T>) {
    return std::string(value.to_string());
  } else if constexpr (HasToStringBeside<T>) {
    return std::string(to_string(value));
  } else if constexpr (IsVector<T>::value) {
    std::string text;  // as Python prints a list
    for (const auto& item : value) {
      if (!text.empty()) text += ", ";
      text += default_text(format_argument<typename T::value_type>(item));
    }
    return "[" + text + "]";
  } else if constexpr (std::same_as<Formatted, std::string>) {
    if constexpr (std::is_pointer_v<T>) {
      if (value == nullptr) return std::string("(null)");
    }
    return std::string(std::string_view(value));
  } else if constexpr (!std::is_void_v<Formatted>) {
    return static_cast<Formatted>(value);
  } else {
    static_assert(!std::is_void_v<Formatted>,
                  "print() does not know this type: it takes numbers, text, pointers to void, what "
                  "has a to_string(), and vectors of these");
  }
}

}  // namespace dtrun::runtime
