#include "text/json_text.h"

#include <boost/json/serialize.hpp>

#include "dtrun/base/utf8.h"

namespace dtrun::launcher {

// Bytes that are not ASCII occur in strings only, so the whole text can be repaired at once.
std::string json_text(const boost::json::value& value) {
  return base::as_utf8(boost::json::serialize(value)) + "\n";
}

}  // namespace dtrun::launcher
