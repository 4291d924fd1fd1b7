#include "jobs/stack_scan.h"

#include <elf.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "dtrun/base/deadline.h"
#include "jobs/process_table.h"
#include "verdict/elf_symbols.h"

namespace dtrun::jobs {
namespace {

using rendezvous::CrashFrame;
namespace fs = std::filesystem;

constexpr std::size_t kMostFrames = 32;
constexpr std::size_t kMostStackBytes = 256 << 10;
constexpr auto kPatience = std::chrono::seconds(1);

struct Mapping {
  std::uint64_t begin = 0, end = 0, offset = 0;
  bool is_code = false;
  std::string file;
};

std::vector<Mapping> mappings_of(pid_t pid) {
  std::ifstream table(proc_path(pid, "maps"));
  std::vector<Mapping> mappings;
  for (std::string line; std::getline(table, line);) {
    Mapping one;
    char rights[5] = {};
    int end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %*s %*s %n", &one.begin, &one.end, rights,
                    &one.offset, &end) != 4)
      continue;
    one.is_code = rights[2] == 'x';
    one.file = line.substr(static_cast<std::size_t>(end));
    mappings.push_back(std::move(one));
  }
  return mappings;
}

const Mapping* mapping_at(const std::vector<Mapping>& mappings, std::uint64_t address) {
  for (const Mapping& one : mappings)
    if (address >= one.begin && address < one.end) return &one;
  return nullptr;
}

std::size_t read_memory(pid_t pid, std::uint64_t address, void* to, std::size_t bytes) {
  iovec own{to, bytes}, its{reinterpret_cast<void*>(address), bytes};
  const ssize_t n = ::process_vm_readv(pid, &own, 1, &its, 1, 0);
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

struct Place {
  std::uint64_t code = 0;
  std::uint64_t stack = 0;
};

std::optional<Place> place_of(pid_t thread) {
  user_regs_struct registers{};
  iovec room{&registers, sizeof registers};
  if (::ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &room) != 0) return std::nullopt;
#if defined(__x86_64__)
  return Place{registers.rip, registers.rsp};
#elif defined(__aarch64__)
  return Place{registers.pc, registers.sp};
#else
  return std::nullopt;
#endif
}

/// Whether the instruction before this address is a call.
bool follows_a_call(pid_t pid, std::uint64_t address) {
  std::uint8_t code[8] = {};
  if (read_memory(pid, address - sizeof code, code, sizeof code) != sizeof code) return false;
#if defined(__x86_64__)
  // FF /2 with its operand in so many bytes.
  const auto is_indirect = [&](std::size_t bytes) {
    return code[8 - bytes] == 0xff && (code[9 - bytes] & 0x38) == 0x10;
  };
  return code[3] == 0xe8 || is_indirect(2) || is_indirect(3) || is_indirect(4) || is_indirect(6) ||
         is_indirect(7);
#else
  std::uint32_t instruction = 0;
  std::memcpy(&instruction, code + 4, sizeof instruction);
  return (instruction & 0xfc000000) == 0x94000000 || (instruction & 0xfffffc1f) == 0xd63f0000;
#endif
}

class StackReader {
 public:
  explicit StackReader(pid_t pid) : pid_(pid), mappings_(mappings_of(pid)) {}

  std::vector<CrashFrame> frames_at(const Place& place) {
    std::vector<CrashFrame> frames = {frame_at(place.code)};
    const Mapping* const stack = mapping_at(mappings_, place.stack);
    if (stack == nullptr) return frames;
    std::vector<std::uint64_t> words(
        std::min<std::uint64_t>(kMostStackBytes, stack->end - place.stack) / sizeof(std::uint64_t));
    words.resize(read_memory(pid_, place.stack, words.data(), words.size() * 8) / 8);
    for (const std::uint64_t word : words) {
      const Mapping* const code = mapping_at(mappings_, word);
      if (code == nullptr || !code->is_code || !follows_a_call(pid_, word)) continue;
      if (frames.size() == kMostFrames) break;
      frames.push_back(frame_at(word - 1));
    }
    return frames;
  }

 private:
  CrashFrame frame_at(std::uint64_t address) {
    const Mapping* const code = mapping_at(mappings_, address);
    if (code == nullptr || !code->file.starts_with('/')) return {address, "", 0};
    const std::uint64_t in_file = address - code->begin + code->offset;
    return {address, code->file, launcher::address_in_file(code->file, in_file)};
  }

  pid_t pid_;
  std::vector<Mapping> mappings_;
};

/// Status of the thread, once it stands still; nullopt: not by then.
std::optional<int> await_stop(pid_t thread, base::Deadline deadline) {
  sigset_t ends;
  ::sigemptyset(&ends);
  ::sigaddset(&ends, SIGCHLD);
  int status = 0;
  pid_t found = 0;
  while ((found = ::waitpid(thread, &status, __WALL | WNOHANG)) == 0 && !deadline.expired()) {
    const timespec patience{0, 10'000'000L};
    ::sigtimedwait(&ends, nullptr, &patience);
  }
  if (found != thread || !WIFSTOPPED(status)) return std::nullopt;
  return status;
}

std::string name_of(const fs::path& task) {
  std::ifstream file(task / "comm");
  std::string name;
  std::getline(file, name);
  return plain(name);
}

}  // namespace

std::vector<ThreadStack> scan_stacks(pid_t pid) {
  sigset_t ends;
  ::sigemptyset(&ends);
  ::sigaddset(&ends, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  const auto deadline = base::Deadline::after(kPatience);
  std::vector<ThreadStack> stacks;
  StackReader reader(pid);
  std::error_code gone;
  for (fs::directory_iterator task(proc_path(pid, "task"), gone);
       !gone && task != fs::directory_iterator(); task.increment(gone)) {
    const pid_t thread = std::atoi(task->path().filename().c_str());
    const std::string name = name_of(task->path());
    // A thread that does not stop, in a call of a dead file system, say, uses up the time. It is
    // let go by the end of this process; no other one is stopped after it.
    if (deadline.expired() || ::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) {
      stacks.push_back({thread, name, {}});
      continue;
    }
    ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
    const std::optional<int> status = await_stop(thread, deadline);
    std::vector<CrashFrame> frames;
    if (const auto place = status ? place_of(thread) : std::nullopt)
      frames = reader.frames_at(*place);
    stacks.push_back({thread, name, std::move(frames)});
    // A signal that was about to be delivered still is; an event of ptrace is none.
    const long signal = status && *status >> 16 == 0 ? WSTOPSIG(*status) : 0;
    ::ptrace(PTRACE_DETACH, thread, nullptr, signal);
  }
  return stacks;
}

}  // namespace dtrun::jobs
