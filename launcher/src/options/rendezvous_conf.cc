#include "options/rendezvous_conf.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <climits>
#include <utility>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "options/config_error.h"
#include "text/spelling.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;
using Seconds = std::optional<std::chrono::nanoseconds>;

// The rendezvous backends in which a key has an effect.
enum class Use { kAlways, kElastic, kC10d, kEtcd, kNever };

struct Key {
  const char* name;
  Use use;
};

constexpr Key kKeys[] = {
    {"join_timeout", Use::kAlways},
    {"timeout", Use::kAlways},
    {"last_call_timeout", Use::kElastic},
    {"close_timeout", Use::kAlways},
    {"heartbeat_timeout", Use::kNever},
    {"keep_alive_interval", Use::kAlways},
    {"keep_alive_max_attempt", Use::kAlways},
    {"read_timeout", Use::kAlways},
    {"is_host", Use::kC10d},
    {"store_type", Use::kC10d},
    {"protocol", Use::kEtcd},
    {"ssl_cert", Use::kEtcd},
    {"ssl_cert_key", Use::kEtcd},
    {"ca_cert", Use::kEtcd},
    {"etcd_prefix", Use::kNever},
    {"token_file", Use::kAlways},
    {"token", Use::kAlways},
    {"store_token", Use::kAlways},
};

// As torchrun's older backend etcd calls them.
constexpr std::pair<const char*, const char*> kOlderNames[] = {
    {"cert", "ssl_cert"}, {"key", "ssl_cert_key"}, {"cacert", "ca_cert"}};

std::string name_of_today(std::string key) {
  for (const auto& [older, name] : kOlderNames)
    if (key == older) return name;
  return key;
}

Error conf_error(const std::string& entry, const std::string& why, std::string remedy = "") {
  if (remedy.empty()) {
    for (const Key& key : kKeys) remedy += (remedy.empty() ? "" : ", ") + std::string(key.name);
    remedy = "the keys are " + remedy;
  }
  return Error(ErrorCode::kUsage, fmt::format("--rdzv_conf: '{}' {}", entry, why), "",
               std::move(remedy));
}

void check_key(const std::string& name, const std::string& entry) {
  std::vector<std::string_view> names;
  for (const Key& key : kKeys) {
    if (name == key.name) return;
    names.emplace_back(key.name);
  }
  const std::string_view nearest = nearest_name(name, names);
  throw conf_error(entry, "is no key that dtrun knows",
                   nearest.empty() ? "" : fmt::format("did you mean {}?", nearest));
}

// The entries of the text, read into a RendezvousConf one by one.
class Reader {
 public:
  RendezvousConf read(std::string_view text) {
    // Quotes that a script's own quoting has left.
    if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') &&
        text.back() == text.front())
      text = text.substr(1, text.size() - 2);
    std::size_t begin = 0;
    while (begin < text.size()) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      read_entry(std::string(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    if (!conf_.join_timeout) conf_.join_timeout = timeout_;
    if (!conf_.ssl_cert_key.empty() && conf_.ssl_cert.empty())
      throw conf_error("ssl_cert_key=" + conf_.ssl_cert_key, "is the key of no certificate",
                       "give ssl_cert, too");
    return std::move(conf_);
  }

 private:
  void read_entry(const std::string& entry) {
    entry_ = entry;
    const auto equals = entry.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == entry.size())
      throw conf_error(entry, "is not key=value");
    const std::string key = name_of_today(entry.substr(0, equals));
    value_ = entry.substr(equals + 1);
    check_key(key, entry);
    if (std::find(conf_.keys.begin(), conf_.keys.end(), key) != conf_.keys.end())
      throw conf_error(entry, "is given twice", "give it once");
    conf_.keys.push_back(key);
    if (key != "etcd_prefix" && !read_time(key) && !read_text(key)) read_choice(key);
  }

  bool read_time(const std::string& key) {
    Seconds unused;
    Seconds* const target = key == "join_timeout"          ? &conf_.join_timeout
                            : key == "timeout"             ? &timeout_
                            : key == "last_call_timeout"   ? &conf_.last_call_timeout
                            : key == "close_timeout"       ? &conf_.close_timeout
                            : key == "heartbeat_timeout"   ? &unused
                            : key == "keep_alive_interval" ? &conf_.keep_alive_interval
                            : key == "read_timeout"        ? &conf_.read_timeout
                                                           : nullptr;
    if (target == nullptr) return false;
    double number = 0;
    const char* const text_end = value_.data() + value_.size();
    const auto [end, error] = std::from_chars(value_.data(), text_end, number);
    constexpr double kShortest = 1e-3, kLongest = 1e9;
    if (error != std::errc() || end != text_end || !(number >= kShortest))
      throw conf_error(entry_, "must be a number of seconds, 0.001 or more",
                       fmt::format("{}=30, or another number", key));
    *target = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(std::min(number, kLongest)));
    return true;
  }

  bool read_text(const std::string& key) {
    std::string* const target = key == "ssl_cert"       ? &conf_.ssl_cert
                                : key == "ssl_cert_key" ? &conf_.ssl_cert_key
                                : key == "ca_cert"      ? &conf_.ca_cert
                                : key == "token_file"   ? &conf_.token_file
                                                        : nullptr;
    if (target != nullptr) *target = value_;
    return target != nullptr;
  }

  void read_choice(const std::string& key) {
    if (key == "is_host") {
      conf_.hosting = read_hosting();
    } else if (key == "store_type") {
      conf_.store_type = one_of("tcp", "file") == 0 ? StoreType::kTcp : StoreType::kFile;
    } else if (key == "protocol") {
      conf_.protocol = one_of("http", "https") == 0 ? EtcdProtocol::kHttp : EtcdProtocol::kHttps;
    } else if (key == "token") {
      read_token();
    } else if (key == "store_token") {
      conf_.store_token = one_of("true", "false") == 0;
    } else {
      conf_.keep_alive_max_attempt = read_count();
    }
  }

  // The value may be a secret, so the error does not show it.
  void read_token() {
    if (value_ != "munge" && value_ != "none")
      throw conf_error("token=...", "must be munge or none",
                       "a token's text is given by token_file=FILE, or by DTRUN_TOKEN");
    conf_.proof = value_ == "munge" ? AgentProof::kMunge : AgentProof::kNone;
  }

  int one_of(const char* first, const char* second) const {
    if (value_ == first) return 0;
    if (value_ == second) return 1;
    throw conf_error(entry_, fmt::format("must be {} or {}", first, second), "write one of them");
  }

  int read_count() const {
    const auto number = base::parse_integer(value_);
    constexpr int kMost = 1'000'000;
    if (!number || *number < 1 || *number > kMost)
      throw conf_error(entry_, fmt::format("must be a number from 1 to {}", kMost),
                       "keep_alive_max_attempt=3, or another number");
    return static_cast<int>(*number);
  }

  Hosting read_hosting() const {
    std::string lower = value_;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    for (const char* word : {"1", "true", "t", "yes", "y"})
      if (lower == word) return Hosting::kAlways;
    for (const char* word : {"0", "false", "f", "no", "n"})
      if (lower == word) return Hosting::kNever;
    throw conf_error(entry_, "must be true or false", "write one of them");
  }

  RendezvousConf conf_;
  Seconds timeout_;
  std::string entry_, value_;
};

}  // namespace

RendezvousConf parse_rendezvous_conf(const std::string& text) {
  return Reader().read(text);
}

RendezvousConf read_rendezvous_conf(const CommandLine& line) {
  constexpr const char* kName = "rdzv-conf";
  try {
    return parse_rendezvous_conf(line.text(kName, ""));
  } catch (const Error& error) {
    refuse_value(line, kName, error);
  }
}

std::vector<std::string> keys_without_effect(const RendezvousConf& conf, Rendezvous rendezvous,
                                             NodeCount nodes) {
  const auto reason = [&](Use use, const std::string& name) -> std::string {
    const bool c10d = rendezvous == Rendezvous::kC10d || rendezvous == Rendezvous::kFile;
    if (use == Use::kElastic && nodes == NodeCount::kFixed)
      return "there is no last call where --nnodes is one number";
    if (use == Use::kC10d && !c10d) return "it is for --rdzv_backend=c10d";
    if (name == "is_host" && rendezvous == Rendezvous::kFile)
      return "with store_type=file the first agent hosts";
    if (use == Use::kEtcd && rendezvous != Rendezvous::kEtcd)
      return "it is for --rdzv_backend=etcd-v2";
    if (name == "etcd_prefix")
      return "a job's keys stand below /torch/elastic/rendezvous, by its --rdzv_id";
    if (use == Use::kNever)
      return "dtrun's heartbeats need no answer; an agent is lost after a silence of "
             "keep_alive_interval times keep_alive_max_attempt";
    return "";
  };
  std::vector<std::string> result;
  for (const std::string& name : conf.keys) {
    const auto key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                  [&](const Key& candidate) { return name == candidate.name; });
    const std::string why = reason(key->use, name);
    if (!why.empty())
      result.push_back(
          fmt::format("dtrun: '{}' of --rdzv_conf is without effect here: {}", name, why));
  }
  return result;
}

}  // namespace dtrun::launcher
