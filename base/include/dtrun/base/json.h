// JSON access over Boost.JSON: parse with an Error that names the source and position, and files
// written whole or not at all.
#pragma once

#include <boost/json/fwd.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

namespace dtrun::base {

/// @param source what the text is, for the message: a file name, "DTRUN_PLAN"
/// @throws Error kProtocol with source, offset and the parser's reason
boost::json::value parse_json(std::string_view text, const std::string& source);

/// @throws Error kNotFound or kSystem for the file, kProtocol for its text
boost::json::value read_json_file(const std::string& path);

/// Writes to a sibling temporary file, syncs, renames. On any error the temporary file is removed
/// and what stood at path before is untouched. @throws Error kSystem
void write_file_atomically(const std::string& path, std::string_view content);

}  // namespace dtrun::base
