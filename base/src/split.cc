#include "dtrun/base/split.h"

#include <boost/algorithm/string/classification.hpp>
#include <boost/algorithm/string/split.hpp>
#include <boost/algorithm/string/trim.hpp>
#include <boost/range/iterator_range.hpp>

namespace dtrun::base {
namespace {

using Range = boost::iterator_range<std::string_view::const_iterator>;

std::string_view shown(const Range& range) {
  return {range.begin(), range.end()};
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<Range> ranges;
  boost::algorithm::split(ranges, text, [separator](char letter) { return letter == separator; });
  std::vector<std::string_view> parts;
  for (const Range& range : ranges) parts.push_back(shown(range));
  return parts;
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<Range> ranges;
  boost::algorithm::split(ranges, text, boost::algorithm::is_any_of(" \t\r\n"),
                          boost::algorithm::token_compress_on);
  std::vector<std::string_view> found;
  for (const Range& range : ranges)
    if (!range.empty()) found.push_back(shown(range));
  return found;
}

std::string_view trimmed(std::string_view text) {
  return shown(boost::algorithm::trim_copy_if(Range(text.begin(), text.end()),
                                              boost::algorithm::is_any_of(" \t\r\n")));
}

}  // namespace dtrun::base
