// JSON values in dist's collectives of objects. In a header of its own: it includes Boost.JSON.
#pragma once

#include <boost/json/value.hpp>

#include "dtrun/runtime/dist_objects.h"

namespace dtrun::dist {

template <>
struct ObjectBytes<boost::json::value> {
  static std::string to_bytes(const boost::json::value& value);
  static boost::json::value from_bytes(std::string_view bytes);
};

}  // namespace dtrun::dist
