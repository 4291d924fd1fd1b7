#include "options/node_range.h"

#include <fmt/core.h>

#include <climits>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

int parse_count(std::string_view text, const char* what) {
  const auto number = base::parse_integer(text);
  if (!number)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("is not N or MIN:MAX: {}'{}' is no number", what, text));
  if (*number < 1)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("must be at least 1, {}is {}", what, text));
  if (*number > INT_MAX)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("is more nodes than can be counted"));
  return static_cast<int>(*number);
}

}  // namespace

NodeRange parse_node_range(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) {
    const int count = parse_count(text, "");
    return {count, count};
  }
  if (text.find(':', colon + 1) != std::string_view::npos)
    throw Error(ErrorCode::kInvalidArgument, "is not N or MIN:MAX: it has three fields or more");
  const NodeRange range{parse_count(text.substr(0, colon), "MIN "),
                        parse_count(text.substr(colon + 1), "MAX ")};
  if (range.least > range.most)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("asks for at least {} and at most {} nodes", range.least, range.most));
  return range;
}

}  // namespace dtrun::launcher
