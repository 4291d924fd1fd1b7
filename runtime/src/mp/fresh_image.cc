#include "fresh_image.h"

#include <fmt/core.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "child_environment.h"
#include "lasting_thread.h"
#include "standard_streams.h"

namespace dtrun::mp {
namespace {

// What stands between the NULs of a file of /proc.
std::vector<std::string> strings_of(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  std::vector<std::string> result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    result.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

}  // namespace

std::string program_name() {
  std::string name;  // the main thread's
  std::ifstream stream("/proc/self/comm");
  std::getline(stream, name);
  return name;
}

base::ChildProcess start_fresh_image(int hand_over, std::vector<int> inherited_fds) {
  base::ChildCommand command;
  // Not the path that it stands for: the file may have been replaced since.
  command.path = "/proc/self/exe";
  command.arguments = strings_of("/proc/self/cmdline");
  if (command.arguments.empty()) command.arguments = {program_name()};
  base::Environment environment = child_environment();
  environment.set(kHandOverVariable, fmt::format("{}:{}", hand_over, ::getpid()));
  command.environment = environment.as_strings();
  base::ChildSetup setup;
  setup.group = base::ChildSetup::Group::kProcessGroup;
  const base::UniqueFd output = duplicate_stream(STDOUT_FILENO);
  const base::UniqueFd error = duplicate_stream(STDERR_FILENO);
  setup.stdout_fd = output.get();
  setup.stderr_fd = error.get();
  setup.inherited_fds = std::move(inherited_fds);
  setup.inherited_fds.push_back(hand_over);
  base::ChildProcess child;
  // The parent-death signal follows the thread that starts the child.
  on_lasting_thread([&] { child = base::ChildProcess::spawn(command, setup); });
  return child;
}

}  // namespace dtrun::mp
