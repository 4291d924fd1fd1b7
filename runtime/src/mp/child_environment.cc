#include "child_environment.h"

#include <cstdlib>
#include <fstream>

#include "dtrun/rendezvous/worker_env.h"

namespace dtrun::mp {
namespace {

constexpr const char* kUseAgentStore = "TORCHELASTIC_USE_AGENT_STORE";

base::Environment environment_at_start() {
  base::Environment result;
  std::ifstream stream("/proc/self/environ", std::ios::binary);
  for (std::string entry; std::getline(stream, entry, '\0');) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos) result.set(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return result;
}

}  // namespace

std::vector<std::string> variables_to_hide(const base::Environment& at_start,
                                           const base::Environment& now) {
  std::vector<std::string> names;
  for (const char* name : rendezvous::kJobPageNames)
    if (now.contains(name)) names.push_back(name);
  const bool same_store = at_start.get("MASTER_ADDR") == now.get("MASTER_ADDR") &&
                          at_start.get("MASTER_PORT") == now.get("MASTER_PORT");
  if (at_start.contains(kUseAgentStore) && now.contains(kUseAgentStore) && !same_store)
    names.push_back(kUseAgentStore);
  return names;
}

base::Environment child_environment() {
  base::Environment environment = base::Environment::current();
  for (const std::string& name : variables_to_hide(environment_at_start(), environment))
    environment.unset(name);
  return environment;
}

void hide_variables() {
  const base::Environment now = base::Environment::current();
  for (const std::string& name : variables_to_hide(environment_at_start(), now))
    ::unsetenv(name.c_str());
}

}  // namespace dtrun::mp
