#include "plan/planned_program.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "cpus/device_count.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

int decide_local_ranks(const std::string& wish, const base::Environment& environment) {
  if (const auto number = base::parse_integer(wish)) return static_cast<int>(*number);
  if (wish == "cpu") return count_cpus();
  const auto visible = environment.get(kVisibleDevices);
  const int gpus = count_gpus(visible);
  if (gpus > 0) return gpus;
  if (wish == "auto") return count_cpus();
  throw Error(ErrorCode::kUnavailable, "--nproc_per_node=gpu, but there is no GPU here",
              visible ? fmt::format("CUDA_VISIBLE_DEVICES='{}' is in force", *visible)
                      : "neither NVML nor /proc/driver/nvidia shows one",
              "--nproc_per_node=cpu, auto or a number");
}

bool ends_with_py(const std::string& name) {
  return name.size() > 3 && name.compare(name.size() - 3, 3, ".py") == 0;
}

// torchrun takes every file for a Python program. Here a file that cannot be executed is one, under
// torchrun's name.
bool is_pythons_for_torchrun(CalledAs called_as, const std::string& name) {
  struct stat status {};
  return is_torchs_name(called_as) && ::stat(name.c_str(), &status) == 0 &&
         S_ISREG(status.st_mode) && ::access(name.c_str(), X_OK) != 0;
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

bool runs_in_python(const Options& options, const std::string& name) {
  return options.run_path ||
         (!options.no_python && (options.module || ends_with_py(name) ||
                                 is_pythons_for_torchrun(options.called_as, name)));
}

base::ChildCommand make_command(const Options& options, const ProgramOptions& program,
                                const base::Environment& environment) {
  const std::string& name = program.words[0];
  base::ChildCommand command;
  command.folder = absolute_folder(program.folder);
  const std::string path = environment.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  if (runs_in_python(options, name)) {
    const std::string interpreter = environment.get("PYTHON_EXEC").value_or("python3");
    command.path = find_interpreter(interpreter, path);
    command.arguments = {interpreter, "-u"};
    if (options.module && !options.run_path) command.arguments.emplace_back("-m");
  } else {
    command.path = base::find_program(path_from(command.folder, name), search_path_for(name, path));
  }
  command.arguments.push_back(name);
  // torch.distributed.launch puts it there, before the program's own.
  if (options.pass_local_rank)
    command.arguments.push_back(fmt::format("--local-rank={}", kLocalRankMacro));
  command.arguments.insert(command.arguments.end(), program.words.begin() + 1, program.words.end());
  return command;
}

}  // namespace

PlannedProgram plan_program(const Options& options, const ProgramOptions& program,
                            base::Environment environment) {
  for (const auto& [name, value] : program.variables) environment.set(name, value);
  return {.name = program.words[0],
          .local_ranks = decide_local_ranks(program.local_ranks, environment),
          .is_python = runs_in_python(options, program.words[0]),
          .command = make_command(options, program, environment)};
}

}  // namespace dtrun::launcher
