// JSON access over Boost.JSON: parse with an Error that names the source and position, and files
// written whole or not at all.
#pragma once

#include <boost/json/fwd.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <string>
#include <string_view>

namespace dtrun::base {

/// @param source what the text is, for the message: a file name, "DTRUN_PLAN"
/// @throws Error kProtocol with source, offset and the parser's reason
boost::json::value parse_json(std::string_view text, const std::string& source);

/// Of files that anybody may have made: nothing but a regular file is read, so that no FIFO is
/// waited for, and no more than kMostJsonBytes of it. May still hang, where the file system does.
/// @throws Error kNotFound or kSystem for the file, kProtocol for its kind, size or text
boost::json::value read_json_file(const std::string& path);
inline constexpr std::size_t kMostJsonBytes = 1 << 20;

/// Writes to a file without a name, syncs, and gives it its name: whoever is killed meanwhile
/// leaves nothing behind. On any error what stood at path before is untouched. Where the file
/// system has no such files (NFS), and where something stands at path, the file has the name
/// PATH.XXXXXX before. @throws Error kSystem
void write_file_atomically(const std::string& path, std::string_view content);

}  // namespace dtrun::base
