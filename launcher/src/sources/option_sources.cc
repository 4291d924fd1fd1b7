#include "sources/option_sources.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"
#include "options/config_error.h"
#include "options/option_names.h"
#include "sources/config_file.h"
#include "sources/engine_options.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

// No configuration file is longer; a longer file is something else.
constexpr std::size_t kLongestFile = 64 * 1024;

std::string read_all(const base::UniqueFd& file, const std::string& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) == 0 && S_ISDIR(status.st_mode))
    throw ConfigError(Error(ErrorCode::kUsage,
                            fmt::format("{} is a folder, not a configuration file", path), "",
                            "name a file of lines NAME = VALUE"));
  std::string text(kLongestFile + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw ConfigError(base::system_error(fmt::format("read {}", path)));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kLongestFile)
    throw ConfigError(
        Error(ErrorCode::kUsage, fmt::format("{} is too long for a configuration file", path),
              fmt::format("it has more than {} bytes", kLongestFile), "name another file"));
  text.resize(size);
  return text;
}

void add_named_file(Reading reading, CommandLine& line) {
  if (!line.has("config")) return;
  const std::string &path = line.get("config").value, &origin = line.get("config").origin;
  const base::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file)
    throw ConfigError(Error(ErrorCode::kNotFound, fmt::format("cannot open {}={}", origin, path),
                            base::system_error("open it").why(),
                            "name a file of lines NAME = VALUE"));
  add_config_text(read_all(file, path), path, line, reading);
}

// Usually there is no such file. A home that this user may not read counts as none, too.
bool can_be_absent(const std::string& path, int error) {
  struct stat status {};
  return error == ENOENT || error == ENOTDIR ||
         (error == EACCES && ::stat(path.c_str(), &status) != 0);
}

void add_users_file(const base::Environment& environment, Reading reading, CommandLine& line) {
  std::string folder = environment.get("XDG_CONFIG_HOME").value_or("");
  if (folder.empty()) {
    folder = environment.get("HOME").value_or("");
    if (folder.empty()) return;
    folder += "/.config";
  }
  const std::string path = folder + "/dtrun/config";
  const base::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && can_be_absent(path, errno)) return;
  if (!file)
    throw ConfigError(Error(ErrorCode::kUsage, fmt::format("cannot open {}", path),
                            base::system_error("open it").why(), "make it readable, or remove it"));
  add_config_text(read_all(file, path), path, line, reading);
  line.users_file = path;
}

// torchrun's default is the empty text, so an empty value names no backend.
void drop_empty_endpoint(CommandLine& line) {
  if (line.text("rdzv-endpoint", "").empty()) line.values.erase("rdzv-endpoint");
}

bool is_an_inquiry(const CommandLine& line) {
  for (const char* name : {"help", "version", "completion", "reference", "remote-agent"})
    if (line.has(name)) return true;
  return false;
}

}  // namespace

CommandLine gather_options(const std::vector<std::string>& arguments,
                           const base::Environment& environment) {
  CommandLine line = read_command_line(arguments, environment);
  if (is_an_inquiry(line)) return line;
  add_named_file(Reading::kStrict, line);
  add_users_file(environment, Reading::kStrict, line);
  drop_empty_endpoint(line);
  // A user who names the hosts does not want the engine's.
  if (names_hosts(line)) return line;
  line.engine = add_engine_options(environment, line);
  return line;
}

LineFormat wished_format(const std::vector<std::string>& arguments,
                         const base::Environment& environment) {
  constexpr Reading kReading = Reading::kWhatCanBeRead;
  CommandLine line = read_command_line(arguments, environment, kReading);
  read_part(kReading, [&] { add_named_file(kReading, line); });
  read_part(kReading, [&] { add_users_file(environment, kReading, line); });
  return line.text("log-format", "text") == "json" ? LineFormat::kJson : LineFormat::kText;
}

Options parse_options(const std::string& name, const std::vector<std::string>& arguments,
                      const base::Environment& environment) {
  return read_options(name, gather_options(arguments, environment), environment);
}

}  // namespace dtrun::launcher
