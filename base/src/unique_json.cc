#include "dtrun/base/unique_json.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "dtrun/base/error.h"
#include "dtrun/base/json.h"

namespace dtrun::base {
namespace {

// Names between the braces of all objects. A parsed object has each once.
std::size_t names_in(std::string_view text) {
  std::size_t colons = 0;
  bool is_within_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') is_within_string = !is_within_string;
    if (is_within_string && text[i] == '\\') ++i;
    if (!is_within_string && text[i] == ':') ++colons;
  }
  return colons;
}

std::size_t names_in(const boost::json::value& value) {
  std::size_t names = 0;
  if (value.is_object()) {
    for (const auto& [name, member] : value.get_object()) names += 1 + names_in(member);
  } else if (value.is_array()) {
    for (const boost::json::value& one : value.get_array()) names += names_in(one);
  }
  return names;
}

}  // namespace

boost::json::value parse_unique_json(std::string_view text, const std::string& source) {
  boost::json::value value = parse_json(text, source);
  if (names_in(text) != names_in(value))
    throw Error(ErrorCode::kProtocol, source + " cannot be taken at its word",
                "a name stands twice in one of its JSON objects");
  return value;
}

}  // namespace dtrun::base
