// The kernel's small files.
#pragma once

#include <optional>
#include <string>

namespace dtrun::doctor {

/// The first line, without its end; nullopt: it cannot be read.
std::optional<std::string> first_line(const std::string& path);
/// "1.5 GiB".
std::string bytes_text(double bytes);
/// Where PATH has a program of that name; empty: nowhere.
std::string in_path(const std::string& program);

}  // namespace dtrun::doctor
