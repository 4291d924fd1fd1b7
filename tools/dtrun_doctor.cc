// dtrun-doctor: looks at this machine, or at each of several hosts, and says what of it keeps jobs
// from running, or makes them slow, and what to do. It changes nothing.
#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "doctor/examinations.h"
#include "doctor/tour.h"
#include "doctor/visit.h"
#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "hosts/host_list.h"
#include "hosts/host_place.h"
#include "hosts/host_plan.h"
#include "hosts/remote_shell.h"
#include "tool_main.h"

namespace dtrun::doctor {
namespace {

using base::Error;
using base::ErrorCode;
namespace json = boost::json;

constexpr int kDefaultPort = 29500;
/// ssh gives up after three quarters of it.
constexpr int kConnectSeconds = 40;
/// What keeps jobs from running was found.
constexpr int kExitIll = 1;

struct Options {
  std::string hosts;
  std::string remote_shell;
  int port = kDefaultPort;
  bool visits = false;
  bool as_json = false;
  bool only_faults = false;
  bool ends_with_0 = false;
};

Findings examine(const Options& options) {
  Findings all;
  for (const Findings& some :
       {examine_limits(), examine_network(options.port), examine_hardware(), examine_software()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

std::string json_of(const std::string& host, const Findings& findings) {
  return json::serialize(json::object{{"host", host}, {"findings", findings_to_json(findings)}}) +
         "\n";
}

std::string report_of(const std::string& host, const Findings& findings, const Options& options) {
  return options.as_json ? json_of(host, findings)
                         : findings_text(host, findings, options.only_faults);
}

void print(const std::string& text) {
  fmt::print("{}", text);
  if (std::fflush(stdout) != 0) throw base::system_error("write to the standard output");
}

/// Three descriptors for each host.
void raise_open_files_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// A user before the '@' is the remote shell's: with one, this machine is reached by it, too.
ToldHost told_host(const std::string& name, const std::vector<std::string>& addresses) {
  const std::string host = name.substr(name.rfind('@') + 1);
  return {.name = name,
          .reached_as = launcher::names_loopback(host) ? base::host_name() : host,
          .is_here = launcher::is_this_machine(name, addresses)};
}

/// @return the exit code: what is found does not matter, if all hosts could be looked at
int examine_hosts(const Options& options) {
  raise_open_files_limit();
  TourPlan plan;
  const std::vector<std::string> addresses = base::interface_addresses();
  for (const launcher::ListedHost& host : launcher::parse_host_list(options.hosts, "--hosts"))
    plan.hosts.push_back(told_host(host.name, addresses));
  plan.shell = options.remote_shell.empty()
                   ? launcher::default_remote_shell(std::chrono::seconds(kConnectSeconds))
                   : launcher::split_remote_shell(options.remote_shell);
  plan.doctor = {launcher::own_program_path(), "--visit", "--port", std::to_string(options.port)};
  ::signal(SIGPIPE, SIG_IGN);  // a host may end at any time
  const TourReport found = tour(plan);
  ::signal(SIGPIPE, SIG_DFL);
  for (const HostReport& report : found.reports)
    print(report_of(report.host, report.findings, options));
  if (found.failures.empty()) return 0;
  fmt::print(stderr, "dtrun-doctor: error: {}\n",
             launcher::failure_text(found.failures, launcher::HostPhase::kStart,
                                    static_cast<int>(plan.hosts.size())));
  return launcher::exit_code_of(found.failures);
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
  app.add_flag("--visit", options.visits, "answers a dtrun-doctor --hosts; for its own use")
      ->group("");
  app.add_flag("--end-with-0", options.ends_with_0, "whatever is found");
  app.add_flag("--json", options.as_json, "an object for each host");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::kUsage, error.what(), "", "dtrun-doctor --help");
  }
  if (app.count("--hosts") > 0) return examine_hosts(options);
  const Findings findings = examine(options);
  if (options.visits) return run_visit(findings, options.port);
  print(report_of(base::host_name(), findings, options));
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
