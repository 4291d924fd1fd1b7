#include "doctor/visit.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <future>
#include <iostream>
#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/detached_thread.h"
#include "dtrun/base/error.h"
#include "dtrun/base/json.h"
#include "dtrun/base/socket.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/base/utf8.h"

namespace dtrun::doctor {
namespace {

namespace json = boost::json;
using base::Deadline;
using base::UniqueFd;

/// A host that drops packets is given up after this.
constexpr auto kPatience = std::chrono::seconds(5);
constexpr std::size_t kMarkLength = 16;

std::string new_mark() {
  std::uint64_t unique = 0;
  if (::getrandom(&unique, sizeof unique, 0) != sizeof unique)
    throw base::system_error("get random bytes");
  return fmt::format("{:016x}", unique);
}

/// All addresses of this machine, as agents and ranks listen at them.
UniqueFd listen_at(std::uint16_t port) {
  for (const char* const any : {"::", "0.0.0.0"}) {
    try {
      return base::listen_tcp_unless_taken(any, port);
    } catch (const base::Error&) {  // no IPv6 here
    }
  }
  return {};
}

/// Gives the mark to whoever comes, until the process ends.
void give_marks(std::vector<UniqueFd> listeners, const std::string& mark) {
  std::vector<pollfd> ready;
  for (const UniqueFd& listener : listeners) ready.push_back({listener.get(), POLLIN, 0});
  while (::poll(ready.data(), ready.size(), -1) >= 0 || errno == EINTR)
    for (const pollfd& one : ready) {
      if ((one.revents & POLLIN) == 0) continue;
      const UniqueFd client(::accept4(one.fd, nullptr, nullptr, SOCK_CLOEXEC));
      // A new socket takes so few bytes at once.
      if (client) (void)!::send(client.get(), mark.data(), mark.size(), MSG_NOSIGNAL);
    }
}

/// Empty: the right one has answered.
std::string try_to_reach(const std::string& host, std::uint16_t port, const std::string& mark) {
  const Deadline deadline = Deadline::after(kPatience);
  try {
    // Tries each address of the name for a second at first: one of them may lead nowhere.
    const UniqueFd socket = base::connect_tcp(host, port, deadline);
    std::string answer(kMarkLength, '\0');
    base::receive_all(socket.get(), answer.data(), answer.size(), deadline);
    if (answer == mark) return "";
    return fmt::format("somebody else answers at {}", base::peer_address(socket.get()));
  } catch (const base::Error& error) {
    return error.why().empty() ? error.summary() : error.why();
  }
}

json::object reach(const json::value& target) {
  const std::string host(target.at("host").as_string()), mark(target.at("mark").as_string());
  const auto port = target.at("port").to_number<std::uint16_t>();
  const auto began = std::chrono::steady_clock::now();
  const std::string error = try_to_reach(host, port, mark);
  const auto time = std::chrono::steady_clock::now() - began;
  return {{"host", host},
          {"port", port},
          {"error", base::as_utf8(error)},
          {"nanoseconds", std::chrono::nanoseconds(time).count()}};
}

/// All at once: one that does not answer takes its whole patience.
json::object reach_all(const json::array& targets) {
  std::vector<std::future<json::object>> answers;
  for (const json::value& target : targets)
    answers.push_back(std::async(std::launch::async, [&target] { return reach(target); }));
  json::array reached;
  for (auto& answer : answers) reached.push_back(answer.get());
  return {{"reached", std::move(reached)}};
}

json::object answer(const json::value& question) {
  const std::string ask(question.at("ask").as_string());
  if (ask == "connect") return reach_all(question.at("to").as_array());
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {{"time", std::chrono::nanoseconds(now).count()}};
}

void say(const json::object& line) {
  fmt::print("{}\n", json::serialize(line));
  if (std::fflush(stdout) != 0) throw base::system_error("write to the standard output");
}

}  // namespace

int run_visit(const Findings& findings, int port) {
  std::vector<UniqueFd> listeners;
  json::array ports;
  for (const int wanted : {0, port}) {
    UniqueFd listener = listen_at(static_cast<std::uint16_t>(wanted));
    if (!listener) continue;
    ports.push_back(base::local_port(listener.get()));
    listeners.push_back(std::move(listener));
  }
  const std::string mark = new_mark();
  // Detached: it ends with the process.
  const auto shared = std::make_shared<std::vector<UniqueFd>>(std::move(listeners));
  base::start_detached_thread([shared, mark] { give_marks(std::move(*shared), mark); });
  say({{"dtrun-doctor", DTRUN_VERSION},
       {"mark", mark},
       {"ports", std::move(ports)},
       {"findings", findings_to_json(findings)}});
  for (std::string line; std::getline(std::cin, line);) {
    const json::value question = base::parse_json(line, "the doctor's question");
    json::object told = answer(question);
    told["number"] = question.at("number");
    say(told);
  }
  return 0;
}

}  // namespace dtrun::doctor
