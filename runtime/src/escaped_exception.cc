#include "escaped_exception.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>

#include "dtrun/base/error.h"
#include "dtrun/rendezvous/failure_report.h"
#include "exception_text.h"

namespace dtrun::runtime {
namespace {

struct Reporter {
  std::string prefix;  // of every line: "[rank3]: "
  std::string error_file;
};
// std::set_terminate takes a plain function, so what it needs must be reachable without an
// argument.
Reporter* the_reporter = nullptr;

void print_with_rank(const std::string& text) {
  const std::string& prefix = the_reporter->prefix;
  std::string out = prefix;
  for (const char c : text) {
    out += c;
    if (c == '\n') out += prefix;
  }
  out += '\n';
  std::fflush(stdout);
  std::fwrite(out.data(), 1, out.size(), stderr);
  std::fflush(stderr);
}

void write_report(const std::string& text) {
  if (the_reporter->error_file.empty()) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  try {
    rendezvous::write_failure_report(
        the_reporter->error_file,
        {.message = text,
         .call_stack = "",
         .timestamp = std::chrono::duration_cast<std::chrono::seconds>(now).count()});
  } catch (const base::Error& error) {
    print_with_rank(std::string("the reason of this failure could not be saved: ") + error.what());
  }
}

[[noreturn]] void on_terminate() {
  if (!std::current_exception()) std::abort();
  const std::string text = current_exception_text().describe();
  print_with_rank(text);
  write_report(text);
  // Not abort(): an error that the program reported is no crash, and its peers learn of it by the
  // exit.
  ::_exit(1);
}

}  // namespace

void report_escaped_exceptions(const base::Environment& environment) {
  static std::once_flag once;
  std::call_once(once, [&] {
    const auto rank = environment.get("RANK");
    the_reporter = new Reporter{rank ? "[rank" + *rank + "]: " : "",
                                environment.get("TORCHELASTIC_ERROR_FILE").value_or("")};
    std::set_terminate(on_terminate);
  });
}

}  // namespace dtrun::runtime
