// JsonText: a JSON value as the one line that a program reads. Environment, arguments and paths are
// any bytes, JSON is UTF-8. Pure.
#pragma once

#include <boost/json/value.hpp>
#include <string>

namespace dtrun::launcher {

/// With the line break. U+FFFD stands for bytes that are no UTF-8.
std::string json_text(const boost::json::value& value);

}  // namespace dtrun::launcher
