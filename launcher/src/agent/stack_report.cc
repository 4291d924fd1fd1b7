#include "agent/stack_report.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "output/notice.h"

namespace dtrun::launcher {

namespace {

/// gdb reads the symbols of all libraries first.
constexpr auto kPatience = std::chrono::seconds(40);
constexpr std::size_t kMostBytes = 64 << 10;

std::string beginning_of(int fd) {
  std::string text(kMostBytes, '\0');
  const ssize_t count = ::pread(fd, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

void StackReport::tell(int rank) {
  const int number = ++number_;
  process_.reset();
  output_ = base::UniqueFd(::memfd_create("dtrun-stack", MFD_CLOEXEC));
  std::error_code none;
  const std::string tool =
      std::filesystem::read_symlink("/proc/self/exe", none).replace_filename("dtrun-jobs");
  patience_.start(base::Deadline::after(kPatience),
                  [=, this] { finish(number, rank, "it is not there after 40 s"); });
  try {
    process_ = std::make_unique<base::ToolProcess>(
        loop_,
        base::ToolCommand{.path = tool,
                          .arguments = {"stacks", std::to_string(::getpid()), std::to_string(rank)},
                          .environment = base::Environment::current().as_strings()},
        base::ToolStreams{.out = output_.get(), .err = output_.get()},
        [=, this](base::ExitStatus status) {
          // A program must not be destroyed within its own call.
          loop_.post([=, this] {
            finish(number, rank, status.success() ? "" : tool + " " + status.describe());
          });
        });
  } catch (const base::Error& error) {
    finish(number, rank, error.summary());
  }
}

void StackReport::finish(int number, int rank, const std::string& failure) {
  if (number != number_) return;
  ++number_;
  patience_.cancel();
  const std::string text = beginning_of(output_.get());
  if (failure.empty()) {
    print_note(plan_, fmt::format("the stack of rank {}, by dtrun stacks:", rank));
    print_text(NoticeLevel::kInfo, text + "\n");
  } else {
    print_note(plan_, fmt::format("the stack of rank {} cannot be shown: {}{}", rank, failure,
                                  text.empty() ? "" : ": " + text));
  }
  process_.reset();
}

}  // namespace dtrun::launcher
