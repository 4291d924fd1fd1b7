#include "group_failure.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "dtrun/base/env.h"

namespace dtrun::collectives {

// The fields are separated by NUL, which no text contains.
std::string GroupFailure::encode() const {
  std::string text = fmt::format("{}", static_cast<int>(error.code()));
  for (const std::string& part :
       {fmt::format("{}", failed_rank), error.summary(), error.why(), error.remedy()}) {
    text += '\0';
    text += part;
  }
  if (text.size() > kLongestText) text.resize(kLongestText);
  return text;
}

GroupFailure GroupFailure::decode(const std::string& text) {
  std::array<std::string, 5> parts;
  std::size_t begin = 0;
  for (std::string& part : parts) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    part = text.substr(begin, end - begin);
    begin = std::min(end + 1, text.size());
  }
  const auto code = static_cast<base::ErrorCode>(base::parse_integer(parts[0]).value_or(0));
  return {base::Error(code, parts[2], parts[3], parts[4]),
          static_cast<int>(base::parse_integer(parts[1]).value_or(-1))};
}

}  // namespace dtrun::collectives
