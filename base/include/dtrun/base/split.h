// Lists and words of a text.
#pragma once

#include <string_view>
#include <vector>

namespace dtrun::base {

/// What stands between the separators: one part more than there are of them. They show `text`.
std::vector<std::string_view> split(std::string_view text, char separator);

/// What stands between blanks, tabs and line breaks: no part is empty. They show `text`.
std::vector<std::string_view> words(std::string_view text);

/// Without the blanks, tabs and line breaks around it.
std::string_view trimmed(std::string_view text);

}  // namespace dtrun::base
