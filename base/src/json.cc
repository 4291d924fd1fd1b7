#include "dtrun/base/json.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json/parser.hpp>
#include <boost/json/src.hpp>

#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::base {

boost::json::value parse_json(std::string_view text, const std::string& source) {
  boost::json::parser parser;
  boost::json::error_code error;
  const std::size_t used = parser.write(boost::json::string_view(text.data(), text.size()), error);
  if (error)
    throw Error(ErrorCode::kProtocol, fmt::format("{} is not valid JSON", source),
                fmt::format("{} at byte {} of {}", error.message(), used, text.size()));
  return parser.release();
}

boost::json::value read_json_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT)
      throw Error(ErrorCode::kNotFound, fmt::format("there is no file {}", path));
    throw system_error(fmt::format("open {}", path));
  }
  std::string text;
  char block[65536];
  for (ssize_t n; (n = ::read(fd.get(), block, sizeof block)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error(fmt::format("read {}", path));
    text.append(block, static_cast<std::size_t>(n));
  }
  return parse_json(text, path);
}

void write_file_atomically(const std::string& path, std::string_view content) {
  std::string temporary = path + ".XXXXXX";
  UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd)
    throw system_error(fmt::format("create a file beside {}", path),
                       "check that the folder exists and can be written to");
  const auto fail = [&](const char* action) {
    const int error_number = errno;
    ::unlink(temporary.c_str());
    throw system_error(
        fmt::format("{} {}", action, path), error_number,
        error_number == ENOSPC ? "free space on that disk, or name another folder" : "");
  };
  for (std::string_view left = content; !left.empty();) {
    const ssize_t n = ::write(fd.get(), left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write");
    left.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fchmod(fd.get(), 0644) != 0 || ::fsync(fd.get()) != 0) fail("write");
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail("replace");
}

}  // namespace dtrun::base
