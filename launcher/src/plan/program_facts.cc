#include "plan/program_facts.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "cpus/device_count.h"
#include "dtrun/base/child_process.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

// To count GPUs may take long, so only where somebody asks.
void count_room(const ProgramOptions& program, const base::Environment& environment,
                ProgramFacts& facts) {
  const std::string& wish = program.local_ranks;
  if (base::parse_integer(wish)) return;
  if (wish != "cpu") facts.gpus = count_gpus(variable_of(program, environment, kVisibleDevices));
  if (wish != "gpu" && facts.gpus <= 0) facts.cpus = count_cpus();
}

bool ends_with_py(const std::string& name) {
  return name.size() > 3 && name.compare(name.size() - 3, 3, ".py") == 0;
}

bool is_data_file(const std::string& name) {
  struct stat status {};
  return ::stat(name.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(name.c_str(), X_OK) != 0;
}

std::string find_interpreter(const std::string& name, const std::string& search_path) {
  try {
    return base::find_program(name, search_path);
  } catch (const base::SpawnError& error) {
    throw base::SpawnError(
        Error(error.code(), error.summary() + ", which would run the Python program", error.why(),
              "set PYTHON_EXEC to a Python; --no_python executes the program itself"),
        error.error_number());
  }
}

// dtrun-bench and its like are those of this dtrun, whatever PATH has.
std::string search_path_for(const std::string& name, const std::string& path) {
  std::error_code unreadable;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  return unreadable || !name.starts_with("dtrun-") ? path
                                                   : self.parent_path().string() + ":" + path;
}

std::string absolute_folder(const std::string& folder) {
  if (folder.empty()) return "";
  std::error_code error;
  if (std::filesystem::is_directory(folder, error))
    return std::filesystem::absolute(folder).string();
  throw Error(ErrorCode::kUsage, fmt::format("cannot work in the folder {}", folder),
              error ? error.message() : "it is no folder",
              "--wdir names one that is on every host");
}

// Where the name leads: one with a slash, from the folder that the program works in.
std::string path_from(const std::string& folder, const std::string& name) {
  const bool is_from_there = !folder.empty() && name.find('/') != std::string::npos;
  return is_from_there ? (std::filesystem::path(folder) / name).string() : name;
}

}  // namespace

std::optional<std::string> variable_of(const ProgramOptions& program,
                                       const base::Environment& environment,
                                       const std::string& name) {
  const auto own = program.variables.find(name);
  return own != program.variables.end() ? own->second : environment.get(name);
}

bool runs_in_python(const Options& options, const std::string& name, bool is_data_file) {
  return options.run_path ||
         (!options.no_python && (options.module || ends_with_py(name) ||
                                 (is_torchs_name(options.called_as) && is_data_file)));
}

std::string interpreter_of(const ProgramOptions& program, const base::Environment& environment) {
  return variable_of(program, environment, "PYTHON_EXEC").value_or("python3");
}

ProgramFacts look_at_program(const Options& options, const ProgramOptions& program,
                             const base::Environment& environment) {
  const std::string& name = program.words[0];
  ProgramFacts facts;
  count_room(program, environment, facts);
  facts.folder = absolute_folder(program.folder);
  facts.is_data_file = is_torchs_name(options.called_as) && is_data_file(name);
  const std::string path =
      variable_of(program, environment, "PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  facts.path = runs_in_python(options, name, facts.is_data_file)
                   ? find_interpreter(interpreter_of(program, environment), path)
                   : base::find_program(path_from(facts.folder, name), search_path_for(name, path));
  return facts;
}

}  // namespace dtrun::launcher
