// JsonString: bytes as what stands between the quotes of a JSON string. Most text needs no escapes
// and is ASCII: it is looked at by the word, and copied in runs. Pure.
#pragma once

#include <string>
#include <string_view>

namespace dtrun::launcher {

/// Appends the text, escaped where JSON demands it, and DEL. False: it is not UTF-8, and nothing
/// was appended.
bool append_json_string(std::string& to, std::string_view text);

}  // namespace dtrun::launcher
