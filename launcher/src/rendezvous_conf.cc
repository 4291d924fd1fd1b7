#include "rendezvous_conf.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

constexpr const char* kKeys[] = {"join_timeout", "timeout", "read_timeout", "is_host"};
// Of torchrun's elastic rendezvous; they decide nothing where the number of nodes is fixed.
constexpr const char* kElasticKeys[] = {"last_call_timeout",      "close_timeout",
                                        "heartbeat_timeout",      "keep_alive_interval",
                                        "keep_alive_max_attempt", "store_type"};

Error conf_error(const std::string& entry, const std::string& why) {
  return Error(ErrorCode::kUsage, fmt::format("--rdzv_conf: '{}' {}", entry, why), "",
               "there are join_timeout=SECONDS, timeout=SECONDS (the same), read_timeout=SECONDS "
               "and is_host=true or false");
}

void check_key(const std::string& key, const std::string& entry) {
  if (std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys)) return;
  if (std::find(std::begin(kElasticKeys), std::end(kElasticKeys), key) != std::end(kElasticKeys))
    throw conf_error(entry, "is not yet in this version of dtrun: it is for elastic jobs");
  throw conf_error(entry, "is no key that dtrun knows");
}

std::map<std::string, std::string> split(std::string text) {
  // Quotes that a script's own quoting has left.
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') &&
      text.back() == text.front())
    text = text.substr(1, text.size() - 2);
  std::map<std::string, std::string> values;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    begin = end + 1;
    const auto equals = entry.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == entry.size())
      throw conf_error(entry, "is not key=value");
    const std::string key = entry.substr(0, equals);
    check_key(key, entry);
    if (!values.emplace(key, entry.substr(equals + 1)).second)
      throw conf_error(entry, "is given twice");
  }
  return values;
}

std::chrono::nanoseconds read_seconds(const std::string& key, const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr double kLongest = 1e9;
  if (error != std::errc() || end != text.data() + text.size() || !(number > 0))
    throw conf_error(key + "=" + text, "must be a number of seconds, more than 0");
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::min(number, kLongest)));
}

Hosting read_hosting(const std::string& text) {
  std::string lower = text;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* word : {"1", "true", "t", "yes", "y"})
    if (lower == word) return Hosting::kAlways;
  for (const char* word : {"0", "false", "f", "no", "n"})
    if (lower == word) return Hosting::kNever;
  throw conf_error("is_host=" + text, "must be true or false");
}

}  // namespace

RendezvousConf parse_rendezvous_conf(const std::string& text) {
  RendezvousConf conf;
  const std::map<std::string, std::string> values = split(text);
  for (const char* key : {"timeout", "join_timeout"})
    if (const auto found = values.find(key); found != values.end())
      conf.join_timeout = read_seconds(key, found->second);
  if (const auto found = values.find("read_timeout"); found != values.end())
    conf.read_timeout = read_seconds(found->first, found->second);
  if (const auto found = values.find("is_host"); found != values.end())
    conf.hosting = read_hosting(found->second);
  return conf;
}

}  // namespace dtrun::launcher
