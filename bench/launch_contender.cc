#include "launch_contender.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <list>

#include "dtrun/base/child_process.h"
#include "dtrun/base/env.h"
#include "dtrun/base/tool_process.h"
#include "launch_page.h"

using namespace dtrun::base;

namespace {

constexpr const char* kRank = DTRUN_BENCH_BIN "/launch_rank";

// The page of one launch.
class PageFile {
 public:
  explicit PageFile(int ranks) {
    const int fd = ::mkstemp(path_);
    if (fd < 0 || ::ftruncate(fd, sizeof(LaunchPage)) != 0) ::abort();
    page_ = static_cast<LaunchPage*>(
        ::mmap(nullptr, sizeof(LaunchPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
    page_->expected = static_cast<std::uint32_t>(ranks);
  }
  ~PageFile() {
    ::munmap(page_, sizeof(LaunchPage));
    ::unlink(path_);
  }
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;

  LaunchPage& page() { return *page_; }
  std::string path() const { return path_; }

 private:
  char path_[32] = "/dev/shm/launch_bench_XXXXXX";
  LaunchPage* page_ = nullptr;
};

// A launcher at work.
class Launcher {
 public:
  explicit Launcher(const std::vector<std::string>& command)
      : process_(loop_,
                 {.path = find_program(command.front(), get_env("PATH").value_or("")),
                  .arguments = {command.begin() + 1, command.end()},
                  .environment = Environment::current().as_strings(),
                  .group = ToolCommand::Group::kProcessGroup},
                 {.in = -1, .out = null(), .err = null()},
                 [this](ExitStatus status) { status_ = status; }) {}

  // Whether it ended with 0 in time.
  bool finish() {
    const Deadline limit = Deadline::after(std::chrono::minutes(1));
    while (!status_ && !limit.expired()) loop_.run_some(limit);
    return status_ && status_->success();
  }

 private:
  static int null() {
    static const int fd = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    return fd;
  }

  EventLoop loop_;
  std::optional<ExitStatus> status_;
  ToolProcess process_;
};

// The least that starting n processes can mean.
bool run_bare_loop(const std::string& path, int ranks) {
  std::string program = kRank, file = path, action = "all";
  char* argv[] = {program.data(), file.data(), action.data(), nullptr};
  for (int i = 0; i < ranks; ++i)
    if (::fork() == 0) {
      ::execv(argv[0], argv);
      ::_exit(127);
    }
  bool all_well = true;
  for (int i = 0; i < ranks; ++i) {
    int status = 0;
    ::wait(&status);
    all_well &= status == 0;
  }
  return all_well;
}

std::vector<std::string> command_line(const LaunchContender& contender, int ranks,
                                      const std::vector<std::string>& rest) {
  std::vector<std::string> words = contender.command;
  for (std::string& word : words) {
    if (word == "N" || word.ends_with("=N"))
      word.replace(word.size() - 1, 1, std::to_string(ranks));
    if (word == "-nN") word = fmt::format("-n{}", ranks);
  }
  words.insert(words.end(), rest.begin(), rest.end());
  return words;
}

double milliseconds(std::int64_t from, std::int64_t to) {
  return static_cast<double>(to - from) / 1e6;
}

}  // namespace

std::optional<Launch> launch(const LaunchContender& contender, int ranks) {
  PageFile file(ranks);
  const std::int64_t begin = now_ns();
  const bool well =
      contender.command.empty()
          ? run_bare_loop(file.path(), ranks)
          : Launcher(command_line(contender, ranks, {kRank, file.path(), "all"})).finish();
  const std::int64_t end = now_ns();
  const LaunchPage& page = file.page();
  if (!well || page.arrived[0] != page.expected) return std::nullopt;
  return Launch{milliseconds(begin, page.first[0]), milliseconds(begin, page.last[0]),
                milliseconds(begin, end)};
}

std::optional<double> restart(const LaunchContender& contender, int ranks) {
  PageFile file(ranks);
  LaunchContender again = contender;
  again.command.emplace_back("--max-restarts=1");
  const bool well = Launcher(command_line(again, ranks, {kRank, file.path(), "restart"})).finish();
  const LaunchPage& page = file.page();
  if (!well || page.arrived[1] != page.expected) return std::nullopt;
  return milliseconds(page.death, page.last[1]);
}

std::optional<Death> death(const std::string& dtrun) {
  PageFile file(4);
  std::list<Launcher> agents;
  const std::string port = fmt::format("--master-port={}", 20000 + ::getpid() % 10000);
  for (const char* node : {"--node-rank=0", "--node-rank=1"})
    agents.emplace_back(
        std::vector<std::string>{dtrun, "--nnodes=2", node, "--master-addr=127.0.0.1", port,
                                 "--nproc-per-node=2", kRank, file.path(), "death"});
  for (Launcher& agent : agents) agent.finish();
  const LaunchPage& page = file.page();
  if (page.death == 0 || page.told[0] == 0 || page.told[1] == 0) return std::nullopt;
  return Death{milliseconds(page.death, page.told[0]), milliseconds(page.death, page.told[1])};
}

bool is_installed(const std::string& program) {
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0;
  for (const char* folder : {"/usr/bin/", "/usr/local/bin/"})
    if (::access((folder + program).c_str(), X_OK) == 0) return true;
  return false;
}
