// dtrun-store: a store server alone, for programs that nobody launched together. One thread: the
// server's loop, which SIGTERM and SIGINT end.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/json.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/tcp_store_server.h"
#include "dtrun/rendezvous/token.h"
#include "options/exit_code.h"
#include "output/notice_writer.h"

namespace dtrun::tools {
namespace {

using base::Error;
using base::ErrorCode;
using base::HostPort;
using rendezvous::LegacyNumbering;
using rendezvous::TcpStoreServer;
using rendezvous::TcpStoreServerOptions;

// Beside the clients': standard streams, listener, loop, a spare one, and some air.
constexpr rlim_t kOwnDescriptors = 24;

struct Options {
  std::string bind = "127.0.0.1";
  std::uint16_t port = 29500;
  std::string port_file;
  std::string token_file;
  std::string legacy = "1.9";
  std::uint64_t max_connections = 0;
  TcpStoreServerOptions server;
};

struct Asked {
  int exit_code = -1;  ///< -1: go on
  Options options;
};

LegacyNumbering numbering_of(const std::string& legacy) {
  if (legacy == "1.9") return LegacyNumbering::kTorch19To20;
  if (legacy == "2.1") return LegacyNumbering::kTorch21;
  if (legacy == "off") return LegacyNumbering::kNone;
  throw Error(ErrorCode::kUsage, fmt::format("--legacy={} is not known", legacy), "",
              "1.9, for PyTorch 1.9 to 2.0, 2.1, or off, to refuse them");
}

// An empty shell variable must not become a store without its token, or a port that nobody learns.
const CLI::Validator kNamesAFile(
    [](std::string& text) { return text.empty() ? "it names no file" : std::string(); }, "");

// A size is a number of bytes above 0; CLI11 takes -1 for the largest of all.
const CLI::Validator kIsASize(
    [](std::string& text) {
      const bool is_digit = !text.empty() && text[0] >= '0' && text[0] <= '9';
      const bool is_zero = text.find_first_of("123456789") == std::string::npos;
      return is_digit && !is_zero ? std::string() : fmt::format("'{}' is no size above 0", text);
    },
    "");

const CLI::Validator kIsACount(
    [](std::string& text) {
      return text.starts_with('-') ? fmt::format("'{}' is no count", text) : std::string();
    },
    "");

Asked read_options(int argc, char** argv) {
  Asked asked;
  Options& options = asked.options;
  CLI::App app(
      "dtrun-store serves a key-value store for torch.distributed's TCPStore clients, PyTorch's "
      "and\n"
      "dtrun's, until SIGTERM or SIGINT. What is in it lives in memory only.");
  app.name("dtrun-store");
  app.set_version_flag("--version", "dtrun-store " DTRUN_VERSION);
  app.add_option("--bind", options.bind,
                 "the one address to listen on: an address or a name of this machine")
      ->type_name("ADDRESS")
      ->capture_default_str();
  app.add_option("--port", options.port, "0: one that is free")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--port-file", options.port_file,
                 "write the port there once it can be reached; removed at the end")
      ->check(kNamesAFile)
      ->type_name("FILE");
  app.add_option("--token-file", options.token_file,
                 "let in only clients that have this token (TcpStoreOptions::token); PyTorch's "
                 "clients cannot have one")
      ->check(kNamesAFile)
      ->type_name("FILE");
  app.add_option("--max-connections", options.max_connections,
                 "clients at the same time; 0: as many as the limit of open files allows")
      ->check(kIsACount)
      ->type_name("N")
      ->capture_default_str();
  app.add_option(
         "--max-memory", options.server.max_store_bytes,
         "of keys, values, waits and unsent answers together: 2GB; the client whose request "
         "would exceed it is closed, reading and deleting go on")
      ->check(kIsASize)
      ->transform(CLI::AsSizeValue(false))
      ->option_text("SIZE");
  app.add_option("--max-key", options.server.max_key_bytes, "the longest key: 8KB")
      ->check(kIsASize)
      ->transform(CLI::AsSizeValue(false))
      ->option_text("SIZE");
  app.add_option("--max-value", options.server.max_value_bytes, "the longest value: 8MB")
      ->check(kIsASize)
      ->transform(CLI::AsSizeValue(false))
      ->option_text("SIZE");
  app.add_option(
         "--legacy", options.legacy,
         "how clients of PyTorch up to 2.1 speak: as 1.9 to 2.0 (1.9), or as 2.1 (2.1); or that "
         "they are refused (off)")
      ->type_name("DIALECT")
      ->capture_default_str();
  app.add_flag_function(
      "-v,--verbose", [](std::int64_t) { base::log::set_levels("+store"); },
      "say who comes and why somebody is closed");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    asked.exit_code = app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::kUsage, error.what(), "", "dtrun-store --help lists the options");
  }
  if (asked.exit_code < 0) options.server.legacy_numbering = numbering_of(options.legacy);
  return asked;
}

// A descriptor that we open must not become somebody's standard stream.
void fill_standard_streams() {
  while (true) {
    const int fd = ::open("/dev/null", O_RDWR);
    if (fd < 0 || fd > STDERR_FILENO) {
      ::close(fd);
      return;
    }
  }
}

// As it is printed: [::1] and ::1 are one address.
std::string bind_host(const std::string& text) {
  if (!text.starts_with('[')) return text;
  const HostPort place = HostPort::parse(text);
  if (place.port)
    throw Error(ErrorCode::kUsage, fmt::format("--bind={} has a port", text), "",
                "--port names it");
  return place.host;
}

// What the store may hold is counted, and what it no longer holds must go back to the system for
// that to be true of the process: big values always get pages of their own, which grow without a
// copy, and the pages of small ones are given back, also from between those that stay.
void keep_memory_tight(TcpStoreServerOptions& server) {
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
  ::mallopt(M_TRIM_THRESHOLD, 2 << 20);
  server.on_shrunk = [] { ::malloc_trim(0); };
}

// Each client is a descriptor, so that their limit is the limit of clients: who comes when there is
// none left is closed, and the others go on.
void set_connection_limit(std::uint64_t connections) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
    throw base::system_error("ask for the limit of files");
  limit.rlim_cur = limit.rlim_max;
  if (connections > 0) {
    if (limit.rlim_max < kOwnDescriptors || connections > limit.rlim_max - kOwnDescriptors)
      throw Error(ErrorCode::kSystem, fmt::format("cannot serve {} connections", connections),
                  fmt::format("at most {} files may be open here", limit.rlim_max),
                  "raise the limit (ulimit -Hn), or lower --max-connections");
    limit.rlim_cur = connections + kOwnDescriptors;
  }
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw base::system_error("set the limit of files");
}

// What was ignored when it started stays so: SIGHUP under nohup, SIGINT behind a script's "&".
std::vector<int> stop_signals() {
  std::vector<int> result = {SIGTERM};
  for (const int number : {SIGINT, SIGHUP}) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) result.push_back(number);
  }
  return result;
}

// A port file is renamed into place: what is no plain file (/dev/stdout, say) would be lost by it.
void demand_plain(const std::string& path) {
  struct stat there {};
  if (::lstat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode)) return;
  throw Error(ErrorCode::kUsage, fmt::format("--port-file={} is no plain file", path),
              "it would be replaced, and removed at the end",
              "name a file of its own; the port stands on standard output, too");
}

// The file that tells the port, as long as the store can be reached.
class PortFile {
 public:
  PortFile(std::string path, std::uint16_t port)
      : path_(std::move(path)), text_(fmt::format("{}\n", port)) {
    if (path_.empty()) return;
    demand_plain(path_);
    base::write_file_atomically(path_, text_);
  }
  ~PortFile() {
    // Another store may have put its own there.
    std::string line;
    if (!path_.empty() && std::getline(std::ifstream(path_), line) && line + "\n" == text_)
      ::unlink(path_.c_str());
  }
  PortFile(const PortFile&) = delete;
  PortFile& operator=(const PortFile&) = delete;

 private:
  const std::string path_;
  const std::string text_;
};

// Whoever does not read standard error, or holds the terminal, costs lines and not the store's
// time.
class LogOnThread {
 public:
  LogOnThread() {
    writer_ = std::make_unique<launcher::NoticeWriter>(STDERR_FILENO);
    base::log::set_writer(
        [](const base::log::Line& line) { writer_->put(std::string(line.text) + "\n"); });
  }
  ~LogOnThread() {
    base::log::set_writer(nullptr);
    writer_->flush(base::Deadline::after(std::chrono::seconds(1)));
    writer_.reset();
  }
  LogOnThread(const LogOnThread&) = delete;
  LogOnThread& operator=(const LogOnThread&) = delete;

 private:
  // The log knows functions only.
  static inline std::unique_ptr<launcher::NoticeWriter> writer_;
};

bool is_open_to_all(const std::string& address) {
  return address == "0.0.0.0" || address == "::";
}

int serve(Options options) {
  if (!options.token_file.empty())
    options.server.token = rendezvous::Token::from_file(options.token_file, "--token-file=");
  set_connection_limit(options.max_connections);
  // Nothing else here needs descriptors: all may be of clients that say nothing yet.
  options.server.max_newcomers = std::numeric_limits<std::size_t>::max();
  keep_memory_tight(options.server);
  const LogOnThread log;
  base::EventLoop loop;
  // Before anybody can know the port, so that nobody's signal comes too early.
  const base::SignalWatch signals(loop, stop_signals(), [&](int) { loop.stop(); });
  base::UniqueFd listener = base::listen_tcp(bind_host(options.bind), options.port);
  const std::string address = base::local_address(listener.get());
  const bool has_token = options.server.token.has_value();
  const TcpStoreServer server(loop, std::move(listener), std::move(options.server));
  const PortFile port_file(options.port_file, server.port());
  if (is_open_to_all(address) && !has_token)
    base::log::warning(base::log::Component::kStore,
                       "everybody who can reach this machine can read and write this store: name "
                       "one address (--bind), or demand a token (--token-file)");
  fmt::print("dtrun-store: serving at {}{}\n", HostPort{address, server.port()}.to_string(),
             has_token ? ", with a token" : "");
  std::fflush(stdout);
  loop.run();
  return 0;
}

int exit_code_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kUsage:
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnavailable:
      return launcher::kExitUsage;
    case ErrorCode::kConnection:
      return launcher::kExitUnreachable;
    case ErrorCode::kSystem:
      return launcher::kExitSystem;
    default:
      return launcher::kExitInternal;
  }
}

}  // namespace
}  // namespace dtrun::tools

int main(int argc, char** argv) {
  using namespace dtrun;
  ::signal(SIGPIPE, SIG_IGN);
  try {
    tools::fill_standard_streams();
    tools::Asked asked = tools::read_options(argc, argv);
    return asked.exit_code >= 0 ? asked.exit_code : tools::serve(std::move(asked.options));
  } catch (const base::Error& error) {
    fmt::print(stderr, "dtrun-store: error: {}\n", error.what());
    return tools::exit_code_of(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "dtrun-store: error: {}\n", error.what());
    return launcher::kExitInternal;
  }
}
