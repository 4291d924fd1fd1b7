#include "options/config_error.h"

#include "options/option_names.h"

namespace dtrun::launcher {

using base::Error;

void refuse_value(const CommandLine& line, const char* name, const Error& error) {
  const auto given = line.values.find(name);
  if (given == line.values.end()) throw Error(error);
  const std::string& origin = given->second.origin;
  std::string what = error.summary();
  const std::string spelling = spelling_of(*find_exactly(name));
  if (what.starts_with(spelling)) what.replace(0, spelling.size(), origin);
  const Error told(error.code(), what, error.why(), error.remedy());
  if (given->second.kind == Origin::kFile && what.starts_with(origin)) throw ConfigError(told);
  throw Error(told);
}

}  // namespace dtrun::launcher
