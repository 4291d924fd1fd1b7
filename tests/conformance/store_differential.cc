// store_differential: the same random conversations, as bytes, with PyTorch's server and with ours.
//   store_differential --python PYTHON [--seeds N] [--first-seed N] [--steps N] [--trace]
// PYTHON has torch; its server is started and ended with this program. Every answer is compared to
// the byte, and so is who was released by each step; the first difference is printed and ends it.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include "conformance/store_script.h"
#include "rendezvous/served_store.h"
#include "support/command.h"

namespace dtrun::conformance {
namespace {

using rendezvous::RawClient;

constexpr std::string_view kNonce = "\x70ing";

// One server and the script's clients of it.
class Side {
 public:
  Side(std::string name, std::uint16_t port)
      : name_(std::move(name)), port_(port), clients_(StoreScript::kClients) {
    for (std::size_t who = 0; who < clients_.size(); ++who) reconnect(who);
  }

  void reconnect(std::size_t who) {
    clients_[who] = std::make_unique<RawClient>(port_);
    clients_[who]->send(rendezvous::bytes("00 ce f7 85 3c"));
    pong(who);
  }
  void send(std::size_t who, std::string_view bytes) { clients_[who]->send(std::string(bytes)); }

  /// The bytes of the answer; "closed" where the connection ended instead.
  std::string reply(std::size_t who, const ScriptRequest& request) {
    try {
      return read(*clients_[who], request);
    } catch (const base::Error& error) {
      if (error.code() != base::ErrorCode::kConnection) return name_ + ": " + error.what();
      reconnect(who);
      return "closed";
    }
  }
  /// What came before the answer to a PING: nothing, or releases.
  std::string pong(std::size_t who) {
    clients_[who]->send("\x0d" + std::string(kNonce));
    std::string before;
    try {
      read_pong(who, before);
    } catch (const base::Error& error) {
      before += name_ + ": " + error.what();
    }
    return before;
  }

 private:
  void read_pong(std::size_t who, std::string& before) {
    for (char byte; (byte = clients_[who]->receive(1)[0]) != kNonce[0];) before += byte;
    if (clients_[who]->receive(3) != kNonce.substr(1)) before += " and no answer to a PING";
  }
  static std::uint64_t number_of(const std::string& bytes) {
    std::uint64_t number = 0;
    for (std::size_t i = 8; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
    return number;
  }
  static std::string read_text(RawClient& client) {
    const std::string size = client.receive(8);
    return size + client.receive(number_of(size));
  }
  static std::string read_list(RawClient& client) {
    const std::string count = client.receive(8);
    std::vector<std::string> texts;
    for (std::uint64_t i = number_of(count); i > 0; --i) texts.push_back(read_text(client));
    std::sort(texts.begin(), texts.end());
    std::string all = count;
    for (const std::string& each : texts) all += each;
    return all;
  }
  static std::string read(RawClient& client, const ScriptRequest& request) {
    switch (request.form) {
      case ReplyForm::kNone:
      case ReplyForm::kRelease:
        return "";
      case ReplyForm::kByte:
        return client.receive(request.bytes[0] == '\x0d' ? 4 : 1);
      case ReplyForm::kNumber:
        return client.receive(8);
      case ReplyForm::kText:
        return read_text(client);
      case ReplyForm::kTexts: {
        std::string all;
        for (std::size_t i = 0; i < request.count; ++i) all += read_text(client);
        return all;
      }
      case ReplyForm::kList:
        return read_list(client);
      case ReplyForm::kQueueFront: {
        const std::string length = client.receive(8);
        return number_of(length) == 0 ? length : length + read_text(client);
      }
      case ReplyForm::kCancel: {
        const std::string first = client.receive(1);
        return first == std::string(1, '\1') ? first : first + client.receive(1);
      }
      case ReplyForm::kClosed:
        return "open: " + client.receive(1);
    }
    return "";
  }

  const std::string name_;
  const std::uint16_t port_;
  std::vector<std::unique_ptr<RawClient>> clients_;
};

std::string shortened(const std::string& bytes) {
  const std::string all = rendezvous::hex(bytes.substr(0, 100));
  return bytes.size() > 100 ? all + "... of " + std::to_string(bytes.size()) + " bytes" : all;
}

class Comparison {
 public:
  enum class Trace { kOff, kOn };
  Comparison(std::uint16_t theirs, std::uint16_t ours, Trace trace)
      : theirs_("PyTorch's", theirs), ours_("ours", ours), trace_(trace == Trace::kOn) {}

  /// False: they differ, and how is printed.
  bool run(unsigned seed, int steps) {
    StoreScript script(seed);
    for (std::size_t who = 0; who < StoreScript::kClients; ++who) {
      theirs_.reconnect(who);  // some may still wait
      ours_.reconnect(who);
    }
    for (int i = 0; i <= steps; ++i)
      if (!take_or_say_why(script, i < steps ? script.next() : script.last())) {
        std::printf("at step %d of seed %u\n", i, seed);
        return false;
      }
    return true;
  }
  std::size_t compared() const { return compared_; }
  std::size_t releases() const { return releases_; }
  std::size_t closings() const { return closings_; }

 private:
  bool take_or_say_why(StoreScript& script, const ScriptStep& step) {
    try {
      return take(script, step);
    } catch (const base::Error& error) {
      std::printf("client %zu: %s: %s\n", step.client,
                  shortened(step.requests.back().bytes).c_str(), error.what());
      return false;
    }
  }

  bool take(StoreScript& script, const ScriptStep& step) {
    if (trace_)
      for (const ScriptRequest& request : step.requests)
        std::printf("client %zu%s: %s\n", step.client, step.reconnects ? " anew" : "",
                    shortened(request.bytes).c_str());
    if (step.reconnects) {
      theirs_.reconnect(step.client);
      ours_.reconnect(step.client);
    }
    send(theirs_, step);
    send(ours_, step);
    for (const ScriptRequest& request : step.requests) {
      const std::string their = theirs_.reply(step.client, request);
      if (!same(request, their, ours_.reply(step.client, request), "answer to")) return false;
      if (their == "closed") ++closings_;
      ++compared_;
    }
    // Its own round trip first: after it, what it sent has been served.
    if (!same_release(script, step, step.client)) return false;
    for (std::size_t who = 0; who < StoreScript::kClients; ++who)
      if (script.waits(who) && !same_release(script, step, who)) return false;
    return true;
  }

  bool same_release(StoreScript& script, const ScriptStep& step, std::size_t who) {
    const std::string their = theirs_.pong(who);
    if (!same(step.requests.back(), their, ours_.pong(who),
              "release of client " + std::to_string(who) + " by"))
      return false;
    if (their.empty()) return true;
    ++releases_;
    script.released(who);
    if (trace_) std::printf("  client %zu is released\n", who);
    return true;
  }

  // Two pieces do not reach a server as two reads, as a rule; that they do at times is enough.
  static void send(Side& side, const ScriptStep& step) {
    std::string all;
    for (const ScriptRequest& request : step.requests) all += request.bytes;
    std::size_t from = 0;
    for (const std::size_t cut : step.cuts) {
      side.send(step.client, std::string_view(all).substr(from, cut - from));
      from = cut;
    }
    side.send(step.client, std::string_view(all).substr(from));
  }

  static bool same(const ScriptRequest& request, const std::string& theirs, const std::string& ours,
                   const std::string& what) {
    if (theirs == ours) return true;
    std::printf("the %s %s differs\n  PyTorch's: %s\n  ours:      %s\n", what.c_str(),
                shortened(request.bytes).c_str(), shortened(theirs).c_str(),
                shortened(ours).c_str());
    return false;
  }

  Side theirs_;
  Side ours_;
  const bool trace_;
  std::size_t compared_ = 0;
  std::size_t releases_ = 0;
  std::size_t closings_ = 0;
};

struct Settings {
  std::string python;
  unsigned first_seed = 1;
  unsigned seeds = 20;
  int steps = 500;
  Comparison::Trace trace = Comparison::Trace::kOff;
};

int run(const Settings& settings) {
  const std::string port_file =
      std::filesystem::temp_directory_path() / ("store_differential." + std::to_string(::getpid()));
  testing_support::CommandOptions options;
  options.limit = std::chrono::hours(24);
  // It warns of every bad client: a pipe that nobody reads would stop it.
  testing_support::Command torch(
      {"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>/dev/null", settings.python,
       DTRUN_SOURCE_DIR "/tests/interop/store_server.py", "libuv", port_file},
      options);
  if (!torch.wait_for_output("serving")) {
    std::printf("PyTorch's server did not start: %s\n", torch.finish().describe().c_str());
    return 1;
  }
  std::uint16_t port = 0;
  std::ifstream(port_file) >> port;
  std::filesystem::remove(port_file);
  const rendezvous::ServedStore ours;
  Comparison comparison(port, ours.port(), settings.trace);
  for (unsigned i = 0; i < settings.seeds; ++i)
    if (!comparison.run(settings.first_seed + i, settings.steps)) return 1;
  std::printf("%zu operations compared, %zu releases, %zu closed connections: no difference\n",
              comparison.compared(), comparison.releases(), comparison.closings());
  return 0;
}

}  // namespace
}  // namespace dtrun::conformance

int main(int argc, char** argv) {
  dtrun::conformance::Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (option == "--trace") settings.trace = dtrun::conformance::Comparison::Trace::kOn;
    if (option == "--python") settings.python = value;
    if (option == "--first-seed") settings.first_seed = static_cast<unsigned>(std::stoul(value));
    if (option == "--seeds") settings.seeds = static_cast<unsigned>(std::stoul(value));
    if (option == "--steps") settings.steps = std::stoi(value);
  }
  if (settings.python.empty()) {
    std::fprintf(stderr,
                 "usage: store_differential --python PYTHON [--seeds N] [--first-seed N] "
                 "[--steps N] [--trace]\n");
    return 64;
  }
  return dtrun::conformance::run(settings);
}
