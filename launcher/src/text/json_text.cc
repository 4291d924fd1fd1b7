#include "text/json_text.h"

#include <boost/json/serialize.hpp>

#include "dtrun/base/utf8.h"

namespace dtrun::launcher {

// What is not ASCII stands in strings only, so that the whole can be put right at once.
std::string json_text(const boost::json::value& value) {
  return base::as_utf8(boost::json::serialize(value)) + "\n";
}

}  // namespace dtrun::launcher
