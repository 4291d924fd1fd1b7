#include "doctor/text_files.h"

#include <fmt/core.h>

#include <fstream>

#include "dtrun/base/child_process.h"
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
  try {
    return base::find_program(program, base::get_env("PATH").value_or("/usr/bin:/bin"));
  } catch (const base::SpawnError&) {
    return "";
  }
}

}  // namespace dtrun::doctor
