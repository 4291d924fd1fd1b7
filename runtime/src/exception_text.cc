#include "exception_text.h"

#include <cxxabi.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <typeinfo>

namespace dtrun::runtime {

std::string readable_type(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : mangled;
}

std::string ExceptionText::describe() const {
  return text.empty() ? "an exception of type " + type : type + ": " + text;
}

ExceptionText current_exception_text() {
  try {
    throw;
  } catch (const base::Error& error) {
    return {readable_type(typeid(error).name()), error.what(), error.code()};
  } catch (const std::exception& error) {
    return {readable_type(typeid(error).name()), error.what(), std::nullopt};
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return {type != nullptr ? readable_type(type->name()) : "?", "", std::nullopt};
  }
}

}  // namespace dtrun::runtime
