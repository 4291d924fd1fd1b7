#include "hosts/remote_shell.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "dtrun/base/error.h"
#include "dtrun/base/split.h"
#include "options/exit_code.h"
#include "options/version.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

// What ssh says, what that means, and what helps.
struct KnownWords {
  std::string_view words;
  const char* meaning;
  const char* remedy;
};
constexpr KnownWords kKnownWords[] = {
    {"dtrun: error: ", "cannot begin", ""},
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", "has another host key than before",
     "ssh-keygen -R HOST, if the host was set up anew"},
    {"Host key verification failed", "has a host key that is not known here",
     "ssh HOST once, and accept its key; or ssh-keyscan HOST >> ~/.ssh/known_hosts"},
    {"Could not resolve hostname", "is not known here", "getent hosts HOST shows what is known"},
    // With the methods that it tried; a shell says the same of a file.
    {"Permission denied (", "accepts no key of yours, and would ask for a password",
     "ssh-copy-id HOST; ssh -o BatchMode=yes HOST true must work"},
    {"Too many authentication failures", "has refused too many keys",
     "name the right one in ~/.ssh/config: IdentityFile, and IdentitiesOnly yes"},
    {"Connection refused", "refuses the connection: no sshd listens there",
     "start sshd there; ~/.ssh/config may name another Port"},
    {"timed out", "does not answer", "is it up, and does a firewall let ssh through?"},
    {"No route to host", "cannot be reached", "is it up, and in a network that this host reaches?"},
    {"Network is unreachable", "cannot be reached", "ip route shows which networks are"},
};

// The last line is the reason; banners and warnings of ssh may stand before it.
std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.remove_suffix(1);
  const auto begin = text.rfind('\n');
  return std::string(text.substr(begin == std::string_view::npos ? 0 : begin + 1).substr(0, 500));
}

std::string first_line_with(std::string_view text, std::string_view words) {
  const auto at = text.find(words);
  const auto begin = text.rfind('\n', at);
  const auto end = text.find_first_of("\r\n", at);
  const auto from = begin == std::string_view::npos ? 0 : begin + 1;
  return std::string(text.substr(from, end == std::string_view::npos ? end : end - from));
}

std::string with_host(std::string text, const std::string& host) {
  constexpr std::string_view kHost = "HOST";
  for (auto at = text.find(kHost); at != std::string::npos; at = text.find(kHost, at + host.size()))
    text.replace(at, kHost.size(), host);
  return text;
}

/// The user's number follows: %i to ssh. Short, for a socket's path has 107 letters at most.
constexpr std::string_view kConnectionFolder = P_tmpdir "/dtrun-ssh-";

HostFailure failure_before_greeting(const HostAttempt& attempt) {
  const std::string& host = attempt.host;
  for (const KnownWords& known : kKnownWords)
    if (attempt.words.find(known.words) != std::string::npos)
      return {host, known.meaning, first_line_with(attempt.words, known.words),
              with_host(known.remedy, host), kExitUnreachable};
  std::string why = last_line(attempt.words.empty() ? attempt.banner : attempt.words);
  const int code = attempt.status->code;
  if (code == kExitNotFound)
    return {host, fmt::format("has no {}", attempt.remote_dtrun), why,
            "install dtrun there, or name its path: --remote_dtrun=PATH", kExitUnreachable};
  if (code == kExitNotExecutable)
    return {host, fmt::format("cannot execute {}", attempt.remote_dtrun), why,
            "--remote_dtrun=PATH names another", kExitUnreachable};
  if (attempt.status->success())
    return {host, fmt::format("has not started dtrun: {} has ended", attempt.shell), why,
            fmt::format("{} {} {} --version must print dtrun's version", attempt.shell, host,
                        attempt.remote_dtrun),
            kExitUnreachable};
  return {
      host,
      fmt::format("cannot be reached: {} ended with {}", attempt.shell, attempt.status->describe()),
      why,
      fmt::format("{} {} {} --version must print dtrun's version", attempt.shell, host,
                  attempt.remote_dtrun),
      kExitUnreachable};
}

}  // namespace

std::vector<std::string> default_remote_shell(base::Deadline::Duration join_timeout,
                                              base::Deadline::Duration persist) {
  const auto most = std::chrono::seconds(60);
  // Shorter than --join_timeout: ssh itself reports best what did not answer.
  const auto seconds = std::clamp(std::chrono::floor<std::chrono::seconds>(join_timeout * 3 / 4),
                                  std::chrono::seconds(1), most);
  // ssh notices a lost host after 30 s (three intervals); the agents notice it after 15 s.
  std::vector<std::string> words = {"ssh", "-T",
                                    "-o",  "BatchMode=yes",
                                    "-o",  fmt::format("ConnectTimeout={}", seconds.count()),
                                    "-o",  "ServerAliveInterval=10"};
  if (persist.count() == 0) return words;
  // The connection's own process leaves this one's session and output, so it ends with neither. To
  // ssh 0 seconds are for ever.
  const auto kept = std::chrono::ceil<std::chrono::seconds>(persist);
  for (const std::string& option :
       {std::string("ControlMaster=auto"), fmt::format("ControlPath={}%i/%C", kConnectionFolder),
        fmt::format("ControlPersist={}", kept.count())}) {
    words.emplace_back("-o");
    words.push_back(option);
  }
  return words;
}

// A line is NAME VALUE or NAME=VALUE, and letters of a name may be of either case.
bool configures_sharing(std::string_view ssh_config) {
  for (const std::string_view raw : base::split(ssh_config, '\n')) {
    std::string line(base::trimmed(raw));
    std::ranges::transform(line, line.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::string name = line.substr(0, line.find_first_of(" \t=\""));
    if (name == "controlmaster" || name == "controlpath" || name == "controlpersist") return true;
  }
  return false;
}

std::string connection_folder(const std::vector<std::string>& remote_shell) {
  const std::string beginning = fmt::format("ControlPath={}", kConnectionFolder);
  const bool keeps = std::ranges::any_of(
      remote_shell, [&](const std::string& word) { return word.starts_with(beginning); });
  return keeps ? fmt::format("{}{}", kConnectionFolder, ::getuid()) : "";
}

std::vector<std::string> without_kept_connections(std::vector<std::string> remote_shell) {
  std::vector<std::string> words;
  for (std::string& word : remote_shell) {
    if (!word.starts_with("Control")) {
      words.push_back(std::move(word));
    } else if (!words.empty()) {
      words.pop_back();  // the -o before it
    }
  }
  return words;
}

std::vector<std::string> split_remote_shell(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (const char letter : text) {
    if (quote != 0) {
      letter == quote ? quote = 0 : (word += letter, 0);
    } else if (letter == '\'' || letter == '"') {
      quote = letter;
      in_word = true;
    } else if (letter == ' ' || letter == '\t') {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word += letter;
      in_word = true;
    }
  }
  if (in_word) words.push_back(std::move(word));
  if (quote != 0 || words.empty() || words.front().empty())
    throw Error(ErrorCode::kUsage, fmt::format("--remote_shell='{}' is no command", text),
                quote != 0 ? "a quotation mark is not closed" : "it is empty",
                "such as: --remote_shell='ssh -p 2222'");
  return words;
}

HostFailure failure_of_attempt(const HostAttempt& attempt) {
  if (!attempt.status)
    return {attempt.host,
            fmt::format("has not {} within {}", attempt.greeted ? "become ready" : "started dtrun",
                        base::format_duration(attempt.waited)),
            last_line(attempt.words.empty() ? attempt.banner : attempt.words),
            "a longer --join_timeout waits longer", kExitTemporary};
  if (!attempt.greeted) return failure_before_greeting(attempt);
  return {attempt.host,
          fmt::format("is lost: {} ended with {}", attempt.shell, attempt.status->describe()),
          last_line(attempt.words), "", kExitUnreachable};
}

HostFailure not_heard_of(const std::string& host) {
  return {host, "has not answered yet", "", "", kExitUnreachable};
}

HostFailure silent_host(const std::string& host, base::Deadline::Duration waited) {
  return {host,
          fmt::format("has not ended within {} after the others", base::format_duration(waited)),
          "it is cut off, or has crashed", "", kExitUnreachable};
}

HostFailure other_version(const std::string& host, const std::string& theirs) {
  return {host, fmt::format("has dtrun {}, and this is dtrun {}", theirs, version_number()), "",
          "install the same version on all hosts, or name another: --remote_dtrun=PATH",
          kExitUnreachable};
}

std::string failure_text(const std::vector<HostFailure>& failures, HostPhase phase,
                         int node_count) {
  std::string text = phase == HostPhase::kJob
                         ? "the job has lost a host"
                         : fmt::format("{} of {} host{} not ready", failures.size(), node_count,
                                       node_count == 1 ? " is" : "s are");
  std::vector<const HostFailure*> told;
  for (const HostFailure& failure : failures) {
    const auto is_alike = [&](const HostFailure* other) { return other->what == failure.what; };
    if (std::ranges::any_of(told, is_alike)) continue;
    told.push_back(&failure);
    std::string hosts;
    for (const HostFailure& other : failures)
      if (other.what == failure.what) hosts += (hosts.empty() ? "" : ", ") + other.host;
    text += fmt::format("\n  {}: {}", hosts, failure.what);
    if (!failure.why.empty()) text += fmt::format("\n    why: {}", failure.why);
    if (!failure.remedy.empty()) text += fmt::format("\n    try: {}", failure.remedy);
  }
  return text;
}

int exit_code_of(const std::vector<HostFailure>& failures) {
  const int first = failures.empty() ? kExitUnreachable : failures.front().code;
  const bool common = std::ranges::all_of(
      failures, [&](const HostFailure& failure) { return failure.code == first; });
  return common ? first : kExitUnreachable;
}

}  // namespace dtrun::launcher
