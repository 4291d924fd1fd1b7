#include "doctor/text_files.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "dtrun/base/env.h"

namespace dtrun::doctor {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::string bytes_text(double bytes) {
  const char* unit = "B";
  for (const char* const larger : {"KiB", "MiB", "GiB", "TiB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = larger;
  }
  return fmt::format("{:.4g} {}", bytes, unit);
}

std::string in_path(const std::string& program) {
  std::istringstream folders(base::get_env("PATH").value_or("/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + program;
    std::error_code none;
    if (std::filesystem::is_regular_file(path, none) && ::access(path.c_str(), X_OK) == 0)
      return path;
  }
  return "";
}

}  // namespace dtrun::doctor
