#include "dtrun/base/json.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <sys/random.h>
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
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    if (errno == ENOENT)
      throw Error(ErrorCode::kNotFound, fmt::format("there is no file {}", path));
    throw system_error(fmt::format("open {}", path));
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw system_error(fmt::format("look at {}", path));
  if (!S_ISREG(status.st_mode))
    throw Error(ErrorCode::kProtocol, fmt::format("{} is no regular file", path),
                "it is a FIFO, a device or a folder, and is not read");
  std::string text;
  char block[65536];
  for (ssize_t n; (n = ::read(fd.get(), block, sizeof block)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error(fmt::format("read {}", path));
    text.append(block, static_cast<std::size_t>(n));
    if (text.size() > kMostJsonBytes)
      throw Error(ErrorCode::kProtocol,
                  fmt::format("{} is longer than {} bytes", path, kMostJsonBytes),
                  "it is not read, lest it take all memory");
  }
  return parse_json(text, path);
}

namespace {

// A file beside `path` without a name, or, where there can be none, with a temporary one.
struct Draft {
  std::string path;
  std::string name;  // empty: none
  UniqueFd fd;

  explicit Draft(const std::string& target) : path(target) {
    const auto slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    fd = UniqueFd(::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
    if (fd) return;
    std::string temporary = path + ".XXXXXX";
    fd = UniqueFd(::mkostemp(temporary.data(), O_CLOEXEC));
    if (!fd)
      throw system_error(fmt::format("create a file beside {}", path),
                         "check that the folder exists and can be written to");
    name = temporary;
  }
  ~Draft() {
    if (!name.empty()) ::unlink(name.c_str());
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  bool link_as(const std::string& new_name) const {
    const std::string source = fmt::format("/proc/self/fd/{}", fd.get());
    return ::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, new_name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  }

  bool publish() {
    if (name.empty() && link_as(path)) return true;
    if (name.empty()) {  // something is there: only a rename replaces it
      if (errno != EEXIST) return false;
      unsigned number = 0;
      if (::getrandom(&number, sizeof number, 0) != sizeof number) return false;
      std::string temporary = fmt::format("{}.{:06x}", path, number & 0xffffff);
      if (!link_as(temporary)) return false;
      name = std::move(temporary);
    }
    if (::rename(name.c_str(), path.c_str()) != 0) return false;
    name.clear();
    return true;
  }
};

}  // namespace

void write_file_atomically(const std::string& path, std::string_view content) {
  Draft draft(path);
  const auto fail = [&](const char* action) {
    const int error_number = errno;
    throw system_error(
        fmt::format("{} {}", action, path), error_number,
        error_number == ENOSPC ? "free space on that disk, or name another folder" : "");
  };
  for (std::string_view left = content; !left.empty();) {
    const ssize_t n = ::write(draft.fd.get(), left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write");
    left.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fchmod(draft.fd.get(), 0644) != 0 || ::fsync(draft.fd.get()) != 0) fail("write");
  if (!draft.publish()) fail("replace");
}

}  // namespace dtrun::base
