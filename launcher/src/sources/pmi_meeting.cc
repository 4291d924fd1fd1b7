#include "sources/pmi_meeting.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "engines/engine_variables.h"
#include "engines/pmi_client.h"
#include "meeting/endpoint_facts.h"
#include "options/port_range.h"

namespace dtrun::launcher {
namespace {

constexpr const char* kKey = "dtrun-head";

// Each job begins its search at another port, so that it does not take a port that another job has
// just found free.
std::uint16_t find_port(const std::string& address, const std::string& job_name) {
  constexpr int kTries = 64, kLast = 65535;
  const std::uint16_t first = port_of_job_name(job_name);
  const auto last = static_cast<std::uint16_t>(std::min(first + kTries, kLast));
  return base::local_port(listen_in_range(address, {first, last}).get());
}

std::string own_endpoint(const Engine& engine, const std::string& local_addr,
                         const std::string& job_name) {
  Options options;
  options.rounds.max_nodes = engine.nodes.value_or(2);
  options.local_addr = local_addr;
  const OwnAddress own = choose_own_address(options, gather_own_facts(options));
  return base::HostPort{own.host, find_port(own.listen_address, job_name)}.to_string();
}

}  // namespace

bool can_be_asked(const Engine& engine) {
  int type = 0;
  socklen_t size = sizeof type;
  return engine.pmi_fd.value_or(-1) > STDERR_FILENO &&
         ::getsockopt(*engine.pmi_fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
         type == SOCK_STREAM;
}

void count_by_pmi(Engine& engine, base::Deadline deadline) {
  if (engine.pmi_port.empty()) return;
  const base::HostPort place = base::HostPort::parse(std::exchange(engine.pmi_port, ""));
  PmiClient server(base::connect_tcp_once(place.host, place.port.value_or(0), deadline),
                   {engine.name, engine.head_by_hand}, deadline);
  engine.tasks = server.introduce(engine.task);
  if (engine.tasks == engine.tasks_on_node) {
    engine.nodes = 1;
    engine.node = 0;
  }
  if (engine.head_host.empty()) engine.pmi_fd = server.release().release();
}

void meet_by_pmi(Engine& engine, const std::string& local_addr, base::Deadline deadline) {
  if (!can_be_asked(engine)) return;
  PmiClient server(base::UniqueFd(*std::exchange(engine.pmi_fd, std::nullopt)),
                   {engine.name, engine.head_by_hand}, deadline);
  server.begin();
  if (engine.task == 0) server.put(kKey, own_endpoint(engine, local_addr, server.job_name()));
  server.barrier();
  const base::HostPort head = base::HostPort::parse(server.get(kKey));
  engine.head_host = head.host;
  engine.port = head.port;
  engine.run_id = server.job_name();
  server.finish();
}

void foresee_meeting_by_pmi(Engine& engine) {
  if (can_be_asked(engine)) engine.head_host = "host-of-task-0";
}

}  // namespace dtrun::launcher
