// The words that start a dtrun on another host, and what those of a shell that failed mean.
#include "hosts/remote_shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::error_of;

TEST(RemoteShell, ItKeepsConnectionsWhereItIsTold) {
  const auto once = default_remote_shell(seconds(10));
  EXPECT_THAT(once, Not(testing::Contains(HasSubstr("Control"))));
  EXPECT_EQ(connection_folder(once), "");
  const auto kept = default_remote_shell(seconds(10), std::chrono::milliseconds(1500));
  EXPECT_THAT(kept, testing::IsSupersetOf({"ControlMaster=auto", "ControlPersist=2",
                                           "ControlPath=/tmp/dtrun-ssh-%i/%C"}));
  EXPECT_EQ(connection_folder(kept), "/tmp/dtrun-ssh-" + std::to_string(::getuid()));
  EXPECT_EQ(without_kept_connections(kept), once);
}

TEST(RemoteShell, SharingIsSeenInTheUsersConfiguration) {
  EXPECT_TRUE(configures_sharing("Host *\n  ControlPath ~/.ssh/%C\n"));
  EXPECT_TRUE(configures_sharing("\tcontrolMASTER=auto"));
  EXPECT_TRUE(configures_sharing("User me\n\nControlPersist \"10\""));
  EXPECT_FALSE(configures_sharing(""));
  EXPECT_FALSE(configures_sharing("Host control\n# ControlPath ~/x\nHostName ControlMaster\n"));
}

TEST(RemoteShell, ItsWordsMayBeQuoted) {
  EXPECT_THAT(split_remote_shell("ssh -p 22"), ElementsAre("ssh", "-p", "22"));
  EXPECT_THAT(split_remote_shell(" docker exec  -i 'a b' \"c 'd'\" ''"),
              ElementsAre("docker", "exec", "-i", "a b", "c 'd'", ""));
  EXPECT_TRUE(error_of([] { split_remote_shell("ssh 'x"); }));
  EXPECT_TRUE(error_of([] { split_remote_shell("  "); }));
}

TEST(RemoteShell, EachOfSshsWordsHasItsMeaning) {
  const auto meaning = [](const std::string& words, int code) {
    return failure_of_attempt({.host = "b",
                               .shell = "ssh",
                               .status = base::ExitStatus{.code = code},
                               .words = words,
                               .remote_dtrun = "dtrun"})
        .what;
  };
  EXPECT_THAT(meaning("ssh: Could not resolve hostname b: Name or service not known\n", 255),
              HasSubstr("is not known here"));
  EXPECT_THAT(meaning("ssh: connect to host b port 22: Connection timed out\r\n", 255),
              HasSubstr("does not answer"));
  EXPECT_THAT(meaning("me@b: Permission denied (publickey,password).\r\n", 255),
              HasSubstr("would ask for a password"));
  EXPECT_THAT(meaning("No ED25519 host key is known for b and you have requested strict "
                      "checking.\r\nHost key verification failed.\r\n",
                      255),
              HasSubstr("has a host key that is not known"));
  EXPECT_THAT(meaning("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification "
                      "failed.\n",
                      255),
              HasSubstr("another host key than before"));
  EXPECT_THAT(meaning("csh: dtrun: Command not found.\n", 127), HasSubstr("has no dtrun"));
  EXPECT_THAT(meaning("bash: line 1: /opt/dtrun: Permission denied\n", 126),
              HasSubstr("cannot execute dtrun"));
  EXPECT_THAT(meaning("what is that\n", 3), HasSubstr("ssh ended with exit code 3"));
}

}  // namespace
}  // namespace dtrun::launcher
