#include "options/config_error.h"

#include <fmt/core.h>

#include "options/option_names.h"

namespace dtrun::launcher {

using base::Error;

void refuse_value(const CommandLine& line, const char* name, const Error& error) {
  if (!line.has(name)) throw Error(error);
  const std::string& origin = line.get(name).origin;
  std::string what = error.summary();
  const std::string spelling = spelling_of(*find_exactly(name));
  if (what.starts_with(spelling)) what.replace(0, spelling.size(), origin);
  const Error told(error.code(), what, error.why(), error.remedy());
  if (line.get(name).kind == Origin::kFile && what.starts_with(origin)) throw ConfigError(told);
  throw Error(told);
}

void refuse_value(const CommandLine& line, const char* name, const std::string& demand) {
  constexpr std::size_t kMostShown = 200;
  const GivenValue& given = line.get(name);
  refuse_value(
      line, name,
      Error(
          base::ErrorCode::kUsage,
          fmt::format("{}={} {}", given.origin, given.value.substr(0, kMostShown), demand), "",
          fmt::format("dtrun --help={} describes it", spelling_of(*find_exactly(name)).substr(2))));
}

}  // namespace dtrun::launcher
