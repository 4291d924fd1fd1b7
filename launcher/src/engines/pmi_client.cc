#include "engines/pmi_client.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <optional>
#include <utility>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"

namespace dtrun::launcher {

using base::Error;
using base::ErrorCode;

std::string pmi_field(std::string_view line, std::string_view name) {
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=')
      return std::string(word.substr(name.size() + 1));
  }
  return "";
}

PmiClient::PmiClient(base::UniqueFd fd, Server server, base::Deadline deadline)
    : fd_(std::move(fd)), server_(std::move(server)), deadline_(deadline) {}

// The answer is followed by how many there are, which this one is, and whether it is to chatter.
int PmiClient::introduce(int id) {
  const std::string question = fmt::format("cmd=initack pmiid={}", id);
  ask(question, "initack");
  std::optional<long long> tasks;
  for (const char* name : {"size", "rank", "debug"}) {
    const std::string line = read_line();
    const auto value = base::parse_integer(pmi_field(line, name));
    if (pmi_field(line, "cmd") != "set" || !value || *value < 0 || *value > INT_MAX)
      throw no_answer(question, fmt::format("it says '{}'", line.substr(0, 200)));
    if (!tasks) tasks = value;
  }
  return static_cast<int>(*tasks);
}

void PmiClient::begin() {
  ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
  job_name_ = pmi_field(ask("cmd=get_my_kvsname", "my_kvsname"), "kvsname");
}

std::string PmiClient::job_name() {
  return job_name_;
}

void PmiClient::put(const std::string& key, const std::string& value) {
  ask(fmt::format("cmd=put kvsname={} key={} value={}", job_name_, key, value), "put_result");
}

void PmiClient::barrier() {
  ask("cmd=barrier_in", "barrier_out");
}

std::string PmiClient::get(const std::string& key) {
  return pmi_field(ask(fmt::format("cmd=get kvsname={} key={}", job_name_, key), "get_result"),
                   "value");
}

void PmiClient::finish() {
  ask("cmd=finalize", "finalize_ack");
  fd_.reset();
}

Error PmiClient::no_answer(const std::string& question, std::string why) const {
  return Error(ErrorCode::kConnection,
               fmt::format("{} (PMI) does not answer '{}'", server_.name, question), std::move(why),
               fmt::format("{}, with the host of task 0, needs no such answer", server_.by_hand));
}

std::string PmiClient::ask(const std::string& question, std::string_view answer) {
  const std::string line = question + '\n';
  // A line is shorter than what a socket takes at once. mpiexec may be gone.
  (void)!::send(fd_.get(), line.data(), line.size(), MSG_NOSIGNAL);
  std::string text;
  try {
    text = read_line();
  } catch (const Error& error) {
    throw no_answer(question, error.what());
  }
  const std::string code = pmi_field(text, "rc");
  if (pmi_field(text, "cmd") != answer || (!code.empty() && code != "0"))
    throw no_answer(question, fmt::format("it says '{}'", text.substr(0, 200)));
  return text;
}

std::string PmiClient::read_line() {
  while (unread_.find('\n') == std::string::npos) {
    pollfd ready{fd_.get(), POLLIN, 0};
    const int count = ::poll(&ready, 1, deadline_.poll_timeout_ms());
    if (count < 0 && errno == EINTR) continue;
    if (count == 0)
      throw Error(ErrorCode::kTimeout, "the time is up",
                  "not all tasks that it has started ask it");
    char block[1024];
    const ssize_t n = ::read(fd_.get(), block, sizeof block);
    if (n <= 0) throw Error(ErrorCode::kConnection, "it has closed the connection");
    unread_.append(block, static_cast<std::size_t>(n));
  }
  const auto end = unread_.find('\n');
  std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return line;
}

}  // namespace dtrun::launcher
