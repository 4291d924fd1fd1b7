#include "support/etcd_lab.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "dtrun/rendezvous/etcd_options.h"

namespace dtrun::testing_support {

EtcdLab::EtcdLab(int members) {
  if (::access("/usr/bin/etcd", X_OK) != 0) {
    reason_ = "it is not installed: scripts/install-packages --lab";
    return;
  }
  folder_ = "/tmp/dtrun_etcd_XXXXXX";
  if (::mkdtemp(folder_.data()) == nullptr) ::abort();
  const CommandResult up = script({"etcd-up", "--ttl", "300", std::to_string(members)});
  if (up.exit_code != 0) {
    reason_ = up.describe();
    return;
  }
  std::string text = up.out.substr(0, up.out.find('\n'));
  const std::string scheme = "http://";
  for (std::size_t at; (at = text.find(scheme)) != std::string::npos;)
    text.erase(at, scheme.size());
  endpoints_ = rendezvous::EtcdOptions::parse_endpoints(text);
}

EtcdLab::~EtcdLab() {
  if (folder_.empty()) return;
  script({"etcd-down"});
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

CommandResult EtcdLab::script(std::vector<std::string> command) {
  command[0] = DTRUN_SOURCE_DIR "/tests/lab/etcd/" + command[0];
  CommandOptions options;
  options.environment["ETCD_DIR"] = folder_ + "/lab";
  return run_command(command, options);
}

void EtcdLab::signal(const std::string& what, int member) {
  const CommandResult result = script({"etcd-member", what, std::to_string(member)});
  if (result.exit_code != 0) throw std::runtime_error(result.describe());
}

void EtcdLab::start() {
  const CommandResult result = script({"etcd-member", "start"});
  if (result.exit_code != 0) throw std::runtime_error(result.describe());
}

}  // namespace dtrun::testing_support
