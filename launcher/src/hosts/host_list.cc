#include "hosts/host_list.h"

#include <fmt/core.h>

#include <algorithm>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "dtrun/base/split.h"
#include "dtrun/rendezvous/round_messages.h"
#include "engines/node_list.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

constexpr std::size_t kMostHosts = 100'000;

Error list_error(const std::string& where, const std::string& what, const std::string& remedy) {
  return Error(ErrorCode::kUsage, fmt::format("{} {}", where, what), "", remedy);
}

int parse_slots(std::string_view text, const std::string& where) {
  const auto number = base::parse_integer(text);
  if (!number || *number < 1 || *number > rendezvous::rounds::kMostLocalRanks)
    throw list_error(where, fmt::format("gives '{}' ranks to a host", text.substr(0, 40)),
                     fmt::format("a number from 1 to {}; leave a host out that shall have none",
                                 rendezvous::rounds::kMostLocalRanks));
  return static_cast<int>(*number);
}

// The name becomes an argument of the remote shell, which must not take it for an option.
void check_name(const std::string& name, const std::string& where) {
  const auto is_allowed = [](unsigned char letter) {
    return letter > ' ' && letter != 0x7f &&
           std::string_view("'\"`$;&|<>(){}*?!\\=,").find(static_cast<char>(letter)) ==
               std::string_view::npos;
  };
  if (name.empty() || name.front() == '-' || !std::all_of(name.begin(), name.end(), is_allowed))
    throw list_error(where, fmt::format("has no host's name: '{}'", name.substr(0, 80)),
                     "a name, USER@NAME, or an address; one of IPv6 in brackets, [fd00::1]:4");
}

// Named again, a host of a file adds its ranks, as with mpirun.
enum class Repeated { kRefused, kAdds };

// The hosts in the order in which they are named first.
class HostAdder {
 public:
  explicit HostAdder(Repeated repeated) : repeated_(repeated) {}

  void add(ListedHost host, const std::string& where) {
    check_name(host.name, where);
    const auto same = std::ranges::find(hosts_, host.name, &ListedHost::name);
    if (same == hosts_.end()) {
      if (hosts_.size() == kMostHosts)
        throw list_error(where, fmt::format("has more than {} hosts", kMostHosts), "name fewer");
      return hosts_.push_back(std::move(host));
    }
    if (repeated_ == Repeated::kRefused)
      throw list_error(where, fmt::format("names {} twice", host.name),
                       fmt::format("name it once, with all its ranks: {}:N", host.name));
    if (!same->slots || !host.slots)
      throw list_error(where, fmt::format("names {} twice, once without ranks", host.name),
                       "name it once, or say each time how many ranks it adds");
    same->slots = parse_slots(std::to_string(*same->slots + *host.slots), where);
  }
  std::vector<ListedHost> take() { return std::move(hosts_); }

 private:
  const Repeated repeated_;
  std::vector<ListedHost> hosts_;
};

// "[fd00::1]:4" is an address, "gpu[1-8]:4" a range; "fd00::1" cannot be told from a port.
bool is_bracketed_address(std::string_view text) {
  return text.starts_with('[') && text.find(':') < text.find(']');
}

// "NAME", "NAME:N", "[ADDRESS]:N". @param names what NAME stands for
void add_entry(std::string_view text, const std::string& where, HostAdder& hosts) {
  if (is_bracketed_address(text)) {
    const auto close = text.find(']');
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && rest[0] != ':')
      throw list_error(where, fmt::format("has '{}'", text.substr(0, 80)), "[ADDRESS]:N");
    ListedHost host{std::string(text.substr(1, close - 1)), std::nullopt};
    if (!rest.empty()) host.slots = parse_slots(rest.substr(1), where);
    return hosts.add(std::move(host), where);
  }
  const auto colon = text.rfind(':');
  if (colon != text.find(':') && text.find('[') == std::string_view::npos)
    throw list_error(where, fmt::format("has '{}'", text.substr(0, 80)),
                     "an address of IPv6 stands in brackets: [fd00::1]:4");
  std::optional<int> slots;
  if (colon != std::string_view::npos) slots = parse_slots(text.substr(colon + 1), where);
  const std::string_view name = text.substr(0, colon);
  if (name.find('[') == std::string_view::npos) return hosts.add({std::string(name), slots}, where);
  for (std::string& one : expand_node_list(name)) hosts.add({std::move(one), slots}, where);
}

// The first comma outside of brackets.
std::size_t find_comma(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']') --depth;
    if (text[i] == ',' && depth <= 0) return i;
  }
  return std::string_view::npos;
}

// Reads Open MPI's "slots=4". Known keys that do not concern the number of ranks are skipped;
// unknown ones are errors.
void add_line(std::string_view line, const std::string& where, HostAdder& hosts) {
  const std::vector<std::string_view> words = base::words(line);
  if (words.empty()) return;
  std::string entry(words.front());
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view key = words[i].substr(0, words[i].find('='));
    const std::string_view value = words[i].substr(std::min(key.size() + 1, words[i].size()));
    if (key == "slots" || key == "cpu" || key == "count") {
      entry += fmt::format(":{}", parse_slots(value, where));
    } else if (key != "max_slots" && key != "max-slots" && key != "binding" && key != "ifname" &&
               key != "user") {
      throw list_error(where, fmt::format("has '{}'", words[i].substr(0, 80)),
                       "a line is HOST, HOST:N or HOST slots=N");
    }
    if (key == "user") entry = fmt::format("{}@{}", value, entry);
  }
  add_entry(entry, where, hosts);
}

}  // namespace

std::vector<ListedHost> parse_host_list(std::string_view text, const std::string& origin) {
  const std::string where = fmt::format("{}={}", origin, text.substr(0, 200));
  HostAdder hosts(Repeated::kRefused);
  for (std::string_view left = text;;) {
    const std::size_t comma = find_comma(left);
    add_entry(base::trimmed(left.substr(0, comma)), where, hosts);
    if (comma == std::string_view::npos) return hosts.take();
    left.remove_prefix(comma + 1);
  }
}

std::vector<ListedHost> parse_hostfile(std::string_view text, const std::string& path) {
  HostAdder hosts(Repeated::kAdds);
  int number = 0;
  for (const std::string_view line : base::split(text, '\n')) {
    add_line(line.substr(0, line.find('#')), fmt::format("{}:{}", path, ++number), hosts);
  }
  std::vector<ListedHost> result = hosts.take();
  if (result.empty())
    throw list_error(path, "names no host", "a line is HOST, HOST:N or HOST slots=N");
  return result;
}

}  // namespace dtrun::launcher
