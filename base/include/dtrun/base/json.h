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

/// For files that anybody may have made. It reads only a regular file, so that it does not wait for
/// a FIFO, and at most kMostJsonBytes of it. It may still hang, where the file system does.
/// @throws Error kNotFound or kSystem for the file, kProtocol for its kind, size or text
boost::json::value read_json_file(const std::string& path);
inline constexpr std::size_t kMostJsonBytes = 1 << 20;

/// Writes to a file without a name, syncs it, and then gives it its name: a process that is killed
/// meanwhile leaves nothing behind. On any error the old file at path is untouched. Where the file
/// system has no such files (NFS), and where there is an old file, the new one is first named
/// PATH.XXXXXX. @throws Error kSystem
void write_file_atomically(const std::string& path, std::string_view content);

}  // namespace dtrun::base
