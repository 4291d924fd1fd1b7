// dtrun doctor, on machines that are made ill on purpose: each fault is found by name, with what it
// means and what to do.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "doctor/agreement.h"
#include "dtrun/base/json.h"
#include "dtrun/base/unique_fd.h"
#include "support/command.h"

namespace dtrun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::run_command;
using Words = std::vector<std::string>;

CommandResult run_doctor(Words options = {}, const CommandOptions& how = {}) {
  options.insert(options.begin(), {DTRUN_BINARY, "doctor"});
  return run_command(options, how);
}

struct Found {
  std::string verdict, found, meaning, remedy;
};

/// By subject.
std::map<std::string, Found> findings_of(const CommandResult& result) {
  std::map<std::string, Found> all;
  const boost::json::value parsed = base::parse_json(result.out, "the doctor's answer");
  for (const boost::json::value& one : parsed.at("findings").as_array()) {
    const auto text = [&](const char* name) { return std::string(one.at(name).as_string()); };
    all[text("subject")] = {text("verdict"), text("found"), text("meaning"), text("remedy")};
  }
  return all;
}

/// The doctor, started by a shell that first makes the machine ill, in namespaces of its own.
std::map<std::string, Found> findings_after(const std::string& harm, Words options = {}) {
  std::string line = harm + "; exec " DTRUN_BINARY " doctor --json";
  for (const std::string& option : options) line += " " + option;
  const CommandResult result = run_command({"unshare", "-m", "-u", "-n", "sh", "-c", line});
  EXPECT_NE(result.out, "") << result.describe();
  return findings_of(result);
}

TEST(DoctorTest, ThisMachineIsLookedAtFromEverySide) {
  const CommandResult text = run_doctor();
  const CommandResult json = run_doctor({"--json", "--end-with-0"});
  EXPECT_EQ(json.exit_code, 0) << json.describe();
  const auto found = findings_of(json);
  EXPECT_EQ(found.size(), 23U);
  bool is_ill = false;
  for (const auto& [subject, one] : found) {
    EXPECT_THAT(text.out, HasSubstr(subject));
    EXPECT_NE(one.found, "") << subject;
    EXPECT_EQ(one.verdict == "ok", one.remedy.empty()) << subject;
    if (one.verdict != "ok") {
      EXPECT_NE(one.meaning, "") << subject;
    }
    is_ill |= one.verdict == "bad";
  }
  EXPECT_EQ(text.exit_code, is_ill ? 1 : 0) << text.describe();
  EXPECT_THAT(text.out, AllOf(HasSubstr(" warnings, "), HasSubstr(" bad\n")));
  EXPECT_THAT(run_doctor({"--only-faults"}).out, Not(HasSubstr(": ok  ")));
}

TEST(DoctorTest, LowLimitsAreFound) {
  const auto found = findings_of(run_command({"prlimit", "--nofile=200", "--memlock=65536",
                                              "--core=0", DTRUN_BINARY, "doctor", "--json"}));
  EXPECT_EQ(found.at("open files").verdict, "bad");
  EXPECT_EQ(found.at("open files").found, "200, at most 200");
  EXPECT_THAT(found.at("open files").remedy, HasSubstr("ulimit -n"));
  EXPECT_THAT(found.at("core files").meaning, HasSubstr("ulimit -c unlimited"));
  EXPECT_THAT(found.at("locked memory").found, HasSubstr("64 KiB"));
}

/// Why no machine can be made ill here; empty: it can.
std::string why_not_ill() {
  const CommandResult tried = run_command({"unshare", "-m", "-u", "-n", "sh", "-c",
                                           "mount -t tmpfs tmpfs /dev/shm && ip link set lo up && "
                                           "hostname nobody && sysctl -n net.core.somaxconn"});
  return tried.exit_code == 0 ? "" : "needs root's namespaces, ip and sysctl: " + tried.err;
}

TEST(DoctorTest, SharedMemoryThatIsSmallOrGoneIsFound) {
  if (const std::string why = why_not_ill(); !why.empty()) GTEST_SKIP() << why;
  const Found small =
      findings_after("mount -t tmpfs -o size=64m tmpfs /dev/shm").at("shared memory");
  EXPECT_EQ(small.verdict, "warning");
  EXPECT_EQ(small.found, "64 MiB free of 64 MiB in /dev/shm");
  EXPECT_THAT(small.remedy, HasSubstr("--shm-size"));
  const Found gone =
      findings_after("mount -t tmpfs tmpfs /dev && mkdir -p /dev && true").at("shared memory");
  EXPECT_EQ(gone.verdict, "warning");
  EXPECT_EQ(gone.found, "/dev/shm cannot be used");
  // Not over /tmp, where this program itself may lie.
  const Found full = findings_after(
                         "mount -t tmpfs tmpfs /dev/shm && mkdir /dev/shm/small && mount -t tmpfs "
                         "-o size=64k tmpfs /dev/shm/small && export TMPDIR=/dev/shm/small")
                         .at("temporary files");
  EXPECT_EQ(full.verdict, "warning");
}

TEST(DoctorTest, AFolderForTemporaryFilesThatIsNotThereIsFound) {
  CommandOptions how;
  how.environment["TMPDIR"] = "/nowhere";
  const Found found = findings_of(run_doctor({"--json"}, how)).at("temporary files");
  EXPECT_EQ(found.verdict, "warning");
  EXPECT_THAT(found.found, HasSubstr("in /tmp, for TMPDIR=/nowhere cannot be written to"));
  how.environment["TMPDIR"] = "";
  EXPECT_THAT(findings_of(run_doctor({"--json"}, how)).at("temporary files").found,
              Not(HasSubstr("TMPDIR")));
}

TEST(DoctorTest, ANetworkInWhichNobodyIsReachedIsFound) {
  if (const std::string why = why_not_ill(); !why.empty()) GTEST_SKIP() << why;
  const auto down = findings_after("hostname nobody-knows-me");
  EXPECT_EQ(down.at("interfaces").verdict, "bad");
  EXPECT_EQ(down.at("interfaces").found, "none is up");
  EXPECT_EQ(down.at("host name").verdict, "warning");
  EXPECT_THAT(down.at("host name").found, HasSubstr("nobody-knows-me has no address: "));
  const auto alone = findings_after(
      "ip link set lo up; sysctl -qw net.core.somaxconn=128 "
      "net.ipv4.ip_local_port_range='40000 41000'");
  EXPECT_EQ(alone.at("interfaces").found, "loopback only");
  EXPECT_EQ(alone.at("interfaces").verdict, "ok");
  EXPECT_EQ(alone.at("listen queue").verdict, "warning");
  EXPECT_EQ(alone.at("listen queue").found, "128");
  EXPECT_EQ(alone.at("ports of connections").verdict, "warning");
  EXPECT_EQ(alone.at("ports of connections").found, "40000 to 41000");
}

TEST(DoctorTest, APortThatSomebodyHasIsFound) {
  const base::UniqueFd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(holder.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(holder.get(), 1), 0);
  ASSERT_EQ(::getsockname(holder.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const Found found = findings_of(run_doctor({"--json", "--port", port})).at("port " + port);
  EXPECT_EQ(found.verdict, "warning");
  EXPECT_EQ(found.found, "Address already in use");
  EXPECT_THAT(found.remedy, AllOf(HasSubstr("ss -ltnp"), HasSubstr("--master_port=PORT")));
}

TEST(DoctorTest, AnEnvironmentThatMisleadsIsFound) {
  CommandOptions how;
  how.environment["OMP_NUM_THREADS"] = "1000";
  how.environment["SLURM_JOB_ID"] = "77";
  how.environment["PMI_RANK"] = "3";
  std::string folder = testing::TempDir() + "doctor.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/dtrun") << "#!/bin/sh\n";
  ASSERT_EQ(::chmod((folder + "/dtrun").c_str(), 0755), 0);
  how.environment["PATH"] = folder;
  const auto found = findings_of(run_doctor({"--json"}, how));
  std::filesystem::remove_all(folder);
  EXPECT_EQ(found.at("threads per rank").verdict, "warning");
  EXPECT_EQ(found.at("Slurm").verdict, "warning");
  EXPECT_THAT(found.at("Slurm").found, HasSubstr("SLURM_JOB_ID=77"));
  EXPECT_THAT(found.at("PMI").meaning, HasSubstr("--adopt"));
  EXPECT_EQ(found.at("dtrun").verdict, "warning");
  EXPECT_THAT(found.at("dtrun").found, HasSubstr(folder + "/dtrun in PATH"));
  EXPECT_THAT(found.at("stacks").found, HasSubstr("no eu-stack, gdb or py-spy"));
}

TEST(DoctorTest, EachHostIsLookedAt) {
  std::string folder = testing::TempDir() + "doctor.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/shell") << "#!/bin/sh\nshift; exec \"$@\"\n";
  ASSERT_EQ(::chmod((folder + "/shell").c_str(), 0755), 0);
  const CommandResult two =
      run_doctor({"--hosts", "127.0.0.2,127.0.0.3", "--remote-shell", folder + "/shell"});
  std::filesystem::remove_all(folder);
  EXPECT_EQ(two.exit_code, 0) << two.describe();
  std::size_t hosts = 0;
  for (std::size_t at = two.out.find(" bad\n"); at != std::string::npos;
       at = two.out.find(" bad\n", at + 1))
    ++hosts;
  EXPECT_EQ(hosts, 2U) << two.describe();
}

/// A shell that hands all to this machine, and sets the clock of 127.0.0.3 wrong.
std::map<std::string, Found> clock_of_a_host_that_is_off_by(std::int64_t seconds) {
  std::string folder = testing::TempDir() + "doctor.XXXXXX";
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/seconds", std::ios::binary)
      .write(reinterpret_cast<const char*>(&seconds), sizeof seconds);
  std::ofstream(folder + "/shell")
      << "#!/bin/sh\nhost=$1; shift\n"
         "[ $host = 127.0.0.3 ] && export DTRUN_TEST_CLOCK="
      << folder << "/seconds LD_PRELOAD=" << DTRUN_STEPPED_CLOCK << "\nexec \"$@\"\n";
  EXPECT_EQ(::chmod((folder + "/shell").c_str(), 0755), 0);
  const CommandResult result =
      run_doctor({"--json", "--hosts", "127.0.0.2,127.0.0.3", "--remote-shell", folder + "/shell"});
  std::filesystem::remove_all(folder);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  CommandResult second;
  second.out = result.out.substr(result.out.find('\n') + 1);
  return findings_of(second);
}

TEST(DoctorTest, AClockThatIsOffIsFound) {
  if (std::string_view(DTRUN_STEPPED_CLOCK).empty())
    GTEST_SKIP() << "the sanitizers have a clock_gettime of their own";
  EXPECT_EQ(clock_of_a_host_that_is_off_by(0).at("clock of hosts").verdict, "ok");
  const Found ahead = clock_of_a_host_that_is_off_by(5).at("clock of hosts");
  EXPECT_EQ(ahead.verdict, "warning");
  EXPECT_THAT(ahead.found, AllOf(testing::ContainsRegex("^(4.99|5)"),
                                 HasSubstr("s ahead of 127.0.0.2, give or take ")));
  EXPECT_THAT(ahead.remedy, HasSubstr("chronyc"));
  const Found behind = clock_of_a_host_that_is_off_by(-90).at("clock of hosts");
  EXPECT_EQ(behind.verdict, "bad");
  EXPECT_THAT(behind.found, HasSubstr(" behind 127.0.0.2"));
  EXPECT_THAT(behind.meaning, HasSubstr("MUNGE"));
}

TEST(DoctorTest, TheClockIsReadByTheShortestRoundTrip) {
  using doctor::ClockOffset;
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  const ClockOffset offset =
      doctor::clock_offset({{milliseconds(0), milliseconds(1900), milliseconds(1000)},
                            {milliseconds(2000), milliseconds(3005), milliseconds(2010)},
                            {milliseconds(4000), milliseconds(4000), milliseconds(4500)}});
  EXPECT_EQ(offset.offset, seconds(1));
  EXPECT_EQ(offset.uncertainty, milliseconds(5));
  // What the measurement leaves open is nobody's fault.
  const ClockOffset vague{seconds(10), seconds(10)};
  EXPECT_EQ(doctor::clock_finding("a", vague, {}).verdict, doctor::Verdict::good);
}

TEST(DoctorTest, ManyHostsConnectToTheFirstAndTheNextAlone) {
  EXPECT_THAT(doctor::targets_of(1, 3), testing::ElementsAre(0, 2));
  EXPECT_EQ(doctor::targets_of(3, 16).size(), 15U);
  EXPECT_THAT(doctor::targets_of(0, 17), testing::ElementsAre(1));
  EXPECT_THAT(doctor::targets_of(3, 17), testing::ElementsAre(0, 4));
  EXPECT_THAT(doctor::targets_of(16, 17), testing::ElementsAre(0));
}

/// 127.0.0.3 greets, and then says something that is no answer, or nothing.
TEST(DoctorTest, AHostThatTalksNonsenseHoldsUpNoOther) {
  std::string folder = testing::TempDir() + "doctor.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string version = run_doctor({"--version"}).out;
  std::ofstream(folder + "/shell")
      << "#!/bin/sh\nhost=$1; shift\n[ $host = 127.0.0.3 ] || exec \"$@\"\n"
      << "echo '{\"dtrun-doctor\":\"" << version.substr(13, version.find('\n') - 13)
      << "\",\"mark\":\"x\",\"ports\":[],\"findings\":[]}'\n"
      << "read question; echo '{\"time\":\"late\",\"number\":1}'; read question; echo '[]'\n";
  ASSERT_EQ(::chmod((folder + "/shell").c_str(), 0755), 0);
  const CommandResult result =
      run_doctor({"--hosts", "127.0.0.2,127.0.0.3", "--remote-shell", folder + "/shell"});
  std::filesystem::remove_all(folder);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("127.0.0.2: ok       open files")) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("127.0.0.3: warning  clock of hosts         it has not answered"));
  EXPECT_THAT(result.out, HasSubstr("127.0.0.3: warning  reaches                it has not told"));
}

TEST(DoctorTest, WhatMakesNoSenseIsRefused) {
  EXPECT_EQ(run_doctor({"--port", "0"}).exit_code, 64);
  EXPECT_EQ(run_doctor({"--ports"}).exit_code, 64);
  for (const char* const hosts : {"a:0", ""}) {
    const CommandResult refused = run_doctor({"--hosts", hosts});
    EXPECT_EQ(refused.exit_code, 64) << refused.describe();
  }
  // What a program reads is whole, or an error.
  EXPECT_EQ(run_command({"sh", "-c", DTRUN_BINARY " doctor --json >/dev/full"}).exit_code, 71);
  // Elsewhere on the line the word is a program's, or its argument.
  EXPECT_THAT(run_command({DTRUN_BINARY, "--nproc_per_node=1", "doctor"}).err,
              Not(HasSubstr("open files")));
}

}  // namespace
}  // namespace dtrun
