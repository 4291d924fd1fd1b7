#include "meeting/endpoint_facts.h"

#include <poll.h>

#include <algorithm>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"

namespace dtrun::launcher {

using base::Deadline;
using base::Error;

namespace {

// The resolver can only be asked again; poll() on nothing is the wait.
void resolve(const std::string& host, Deadline deadline, EndpointFacts& facts) {
  while (true) {
    try {
      facts.addresses = base::resolve_addresses(host);
      return;
    } catch (const Error& error) {
      facts.resolve_error = error.why();
    }
    if (deadline.expired()) return;
    constexpr int kPauseMs = 200;
    ::poll(nullptr, 0, std::min(kPauseMs, deadline.poll_timeout_ms()));
  }
}

EndpointFacts facts_of_machine() {
  EndpointFacts facts;
  facts.own_addresses = base::interface_addresses();
  facts.own_names = {base::host_name()};
  return facts;
}

}  // namespace

EndpointFacts resolve_endpoint(const Options& options, Deadline deadline) {
  EndpointFacts facts;
  resolve(options.master_addr, deadline, facts);
  return facts;
}

EndpointFacts gather_endpoint_facts(const Options& options, Deadline deadline) {
  EndpointFacts facts = facts_of_machine();
  const bool here =
      options.hosting == Hosting::kAlways || options.master_addr == facts.own_names[0];
  // If the endpoint is this machine anyhow, an unresolved name does no harm.
  resolve(options.master_addr, here ? Deadline::after({}) : deadline, facts);
  if (!here) facts.own_names.push_back(base::whole_host_name());
  return facts;
}

EndpointFacts gather_own_facts(const Options& options) {
  EndpointFacts facts = facts_of_machine();
  resolve(options.local_addr.empty() ? facts.own_names[0] : options.local_addr, Deadline::after({}),
          facts);
  return facts;
}

}  // namespace dtrun::launcher
