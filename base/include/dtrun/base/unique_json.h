// JSON of formats in which an object has each name once: where one stands twice, readers differ in
// which value they take.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>

namespace dtrun::base {

/// As parse_json() (json.h). @throws Error kProtocol for a name that stands twice in an object, too
boost::json::value parse_unique_json(std::string_view text, const std::string& source);

}  // namespace dtrun::base
