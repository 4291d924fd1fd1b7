// dtrun-doctor: looks at this machine, or at each of several hosts, and says what of it keeps jobs
// from running, or makes them slow, and what to do. It changes nothing.
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "doctor/examinations.h"
#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "dtrun/base/utf8.h"
#include "tool_main.h"

namespace dtrun::doctor {
namespace {

using base::Error;
using base::ErrorCode;
namespace json = boost::json;

constexpr int kDefaultPort = 29500;
/// What keeps jobs from running was found.
constexpr int kExitIll = 1;

struct Options {
  std::string hosts;
  std::string remote_shell;
  int port = kDefaultPort;
  bool as_json = false;
  bool only_faults = false;
  bool ends_with_0 = false;
};

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::good:
      return "ok";
    case Verdict::warning:
      return "warning";
    case Verdict::bad:
      return "bad";
  }
  return "";
}

Findings examine(const Options& options) {
  Findings all;
  for (const Findings& some :
       {examine_limits(), examine_network(options.port), examine_hardware(), examine_software()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

/// Whole lines at once: several hosts write beside each other.
std::string text_of(const Findings& findings, const Options& options) {
  const std::string begin = base::host_name() + ": ";
  std::string text;
  for (const Finding& finding : findings) {
    if (options.only_faults && finding.verdict == Verdict::good) continue;
    text += fmt::format("{}{:8} {:22} {}\n", begin, name_of(finding.verdict), finding.subject,
                        finding.found);
    if (!finding.meaning.empty()) text += fmt::format("{}{:31} {}\n", begin, "", finding.meaning);
    if (!finding.remedy.empty())
      text += fmt::format("{}{:31} try: {}\n", begin, "", finding.remedy);
  }
  const auto count = [&](Verdict verdict) {
    return std::ranges::count(findings, verdict, &Finding::verdict);
  };
  return text + fmt::format("{}{} ok, {} warnings, {} bad\n", begin, count(Verdict::good),
                            count(Verdict::warning), count(Verdict::bad));
}

std::string json_of(const Findings& findings) {
  json::array list;
  for (const Finding& finding : findings)
    list.push_back(json::object{{"subject", finding.subject},
                                {"verdict", name_of(finding.verdict)},
                                {"found", base::as_utf8(finding.found)},
                                {"meaning", base::as_utf8(finding.meaning)},
                                {"remedy", base::as_utf8(finding.remedy)}});
  return json::serialize(json::object{{"host", base::host_name()}, {"findings", std::move(list)}}) +
         "\n";
}

/// This program on each host, by dtrun: a host that cannot be reached is named by it.
[[noreturn]] void examine_hosts(const Options& options) {
  std::error_code none;
  const std::string own = std::filesystem::read_symlink("/proc/self/exe", none);
  const std::string dtrun = std::filesystem::path(own).parent_path() / "dtrun";
  std::vector<std::string> words = {dtrun, "--hosts=" + options.hosts, "--nproc_per_node=1",
                                    "--tag=never"};
  if (!options.remote_shell.empty()) words.push_back("--remote_shell=" + options.remote_shell);
  words.insert(words.end(), {own, "--port", std::to_string(options.port)});
  if (options.as_json) words.emplace_back("--json");
  if (options.only_faults) words.emplace_back("--only-faults");
  // A host that is ill must not end the others'.
  words.emplace_back("--end-with-0");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(dtrun.c_str(), arguments.data());
  throw base::system_error("run " + dtrun);
}

int run(int argc, char** argv) {
  CLI::App app(
      "dtrun-doctor looks at this machine, or at several, and says what keeps jobs from running or "
      "makes them slow, what that means, and what to do. It changes nothing.");
  app.name("dtrun-doctor");
  app.set_version_flag("--version", "dtrun-doctor " DTRUN_VERSION);
  Options options;
  app.add_option("--hosts", options.hosts, "looks at each of these hosts, as dtrun --hosts")
      ->type_name("a,b");
  app.add_option("--remote-shell,--remote_shell", options.remote_shell,
                 "with --hosts: what starts programs there, instead of ssh")
      ->type_name("CMD");
  app.add_option("--port", options.port, "that jobs of several nodes meet at (29500)")
      ->check(CLI::Range(1, 65535))
      ->type_name("N");
  app.add_flag("--only-faults", options.only_faults, "shows what is not ok");
  app.add_flag("--end-with-0", options.ends_with_0, "whatever is found");
  app.add_flag("--json", options.as_json, "an object for each host");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::kUsage, error.what(), "", "dtrun-doctor --help");
  }
  if (app.count("--hosts") > 0) examine_hosts(options);
  const Findings findings = examine(options);
  fmt::print("{}", options.as_json ? json_of(findings) : text_of(findings, options));
  if (std::fflush(stdout) != 0) throw base::system_error("write to the standard output");
  const bool is_ill = std::ranges::any_of(
      findings, [](const Finding& finding) { return finding.verdict == Verdict::bad; });
  return is_ill && !options.ends_with_0 ? kExitIll : 0;
}

}  // namespace
}  // namespace dtrun::doctor

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_DFL);
  return dtrun::tools::tool_main("dtrun-doctor", dtrun::doctor::run, argc, argv);
}
