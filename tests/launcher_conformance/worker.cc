// A rank as the conformance cases want it, under either launcher: leaves a file named RANK (RANK.N
// in restart N) with its environment and arguments in FOLDER/ranks, then does what it is told.
//
//     worker FOLDER exit CODE              ends with CODE
//     worker FOLDER fail-first             ends with 3 once all are there, but with 0 after a
//     restart worker FOLDER RANK exit CODE         that rank does so once all ranks of the node are
//     there, worker FOLDER RANK signal NUMBER     the others wait to be ended worker FOLDER RANK
//     raise TEXT        writes error.json as torch's @record does, ends with 1 worker FOLDER say
//     writes lines to both streams worker FOLDER wait                   says "up", waits to be
//     ended worker FOLDER ignore-term            the same, and ignores SIGTERM
#include <dirent.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

extern char** environ;

namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Whole at once, for those who wait for it.
void leave_record(const std::string& folder, int argc, char** argv) {
  const std::string restart = variable("TORCHELASTIC_RESTART_COUNT");
  const std::string name =
      variable("RANK") + (restart.empty() || restart == "0" ? "" : "." + restart);
  const std::string hidden = folder + "/." + name + "." + std::to_string(::getpid());
  {
    std::ofstream file(hidden);
    for (char** entry = environ; *entry != nullptr; ++entry) file << *entry << '\0';
    file << '\0';
    for (int i = 2; i < argc; ++i) file << argv[i] << '\0';
  }
  std::rename(hidden.c_str(), (folder + "/ranks/" + name).c_str());
}

int count_records(const std::string& folder) {
  int count = 0;
  DIR* const directory = ::opendir((folder + "/ranks").c_str());
  while (const dirent* entry = ::readdir(directory)) count += entry->d_name[0] != '.' ? 1 : 0;
  ::closedir(directory);
  return count;
}

void wait_for_all(const std::string& folder) {
  const int watch = ::inotify_init1(IN_CLOEXEC);
  ::inotify_add_watch(watch, (folder + "/ranks").c_str(), IN_MOVED_TO);
  char events[4096];
  while (count_records(folder) < std::atoi(variable("LOCAL_WORLD_SIZE").c_str()))
    if (::read(watch, events, sizeof events) < 0) ::_exit(99);
}

[[noreturn]] void wait_to_be_ended() {
  while (true) ::pause();
}

int raise_error(const std::string& text) {
  std::ofstream(variable("TORCHELASTIC_ERROR_FILE"))
      << R"({"message": {"message": "ValueError: )" << text
      << R"(", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  in worker.cc\nValueError: )"
      << text << R"(\n", "timestamp": "1700000000"}}})";
  return 1;
}

int act_as(const std::string& folder, const std::string& rank, const std::string& action,
           const char* argument) {
  if (rank != variable("RANK")) wait_to_be_ended();
  wait_for_all(folder);
  if (action == "exit") return std::atoi(argument);
  if (action == "raise") return raise_error(argument);
  const rlimit none{};
  ::setrlimit(RLIMIT_CORE, &none);
  ::signal(std::atoi(argument), SIG_DFL);
  ::raise(std::atoi(argument));
  return 98;
}

void say() {
  const std::string rank = variable("RANK");
  std::printf("out of %s\nmore of %s\n", rank.c_str(), rank.c_str());
  std::fflush(stdout);
  std::fprintf(stderr, "err of %s\n", rank.c_str());
}

[[noreturn]] void wait_up() {
  std::printf("up %s\n", variable("RANK").c_str());
  std::fflush(stdout);
  wait_to_be_ended();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 97;
  const std::string folder = argv[1], verb = argv[2];
  if (verb == "ignore-term") ::signal(SIGTERM, SIG_IGN);
  leave_record(folder, argc, argv);
  if (verb == "exit") return std::atoi(argv[3]);
  if (verb == "fail-first") {
    const bool again = variable("TORCHELASTIC_RESTART_COUNT") != "0";
    return again ? 0 : act_as(folder, "0", "exit", "3");
  }
  if (verb == "wait" || verb == "ignore-term") wait_up();
  if (verb == "say") {
    say();
    return 0;
  }
  return argc == 5 ? act_as(folder, verb, argv[3], argv[4]) : 97;
}
