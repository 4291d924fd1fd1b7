#include "meeting/head_record.h"

#include <fmt/core.h>
#include <sys/random.h>
#include <unistd.h>

#include <charconv>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"

namespace dtrun::launcher {
namespace {

constexpr std::string_view kFirstLine = "dtrun-head 1";
constexpr std::string_view kLastLine = "end\n";

bool is_plain(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == ':';
}

std::string escape(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_plain(byte)) {
      result += c;
    } else {
      result += fmt::format("%{:02X}", byte);
    }
  }
  return result;
}

std::optional<std::string> unescape(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    if (is_plain(static_cast<unsigned char>(text.front()))) {
      result += text.front();
      text.remove_prefix(1);
      continue;
    }
    unsigned byte = 0;
    if (text.front() != '%' || text.size() < 3) return std::nullopt;
    const char* const end = text.data() + 3;
    if (std::from_chars(text.data() + 1, end, byte, 16).ptr != end) return std::nullopt;
    result += static_cast<char>(byte);
    text.remove_prefix(3);
  }
  return result;
}

// Takes "key value\n" off the front.
bool take_line(std::string_view& text, std::string_view key, std::string& value) {
  const auto end = text.find('\n');
  if (end == std::string_view::npos) return false;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  if (line.size() <= key.size() || line.substr(0, key.size()) != key || line[key.size()] != ' ')
    return false;
  auto plain = unescape(line.substr(key.size() + 1));
  if (!plain) return false;
  value = std::move(*plain);
  return true;
}

}  // namespace

HeadRecord make_head_record(const std::string& run_id, const std::string& host,
                            std::uint16_t port) {
  std::uint64_t nonce = 0;
  if (::getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
    throw base::system_error("get random bytes");
  return {run_id, host, port, fmt::format("{}:{}", base::host_name(), ::getpid()),
          fmt::format("{:016x}", nonce)};
}

std::string format_head_record(const HeadRecord& record) {
  return fmt::format("{}\nrun_id {}\nhost {}\nport {}\nagent {}\nnonce {}\n{}", kFirstLine,
                     escape(record.run_id), escape(record.host), record.port, escape(record.agent),
                     escape(record.nonce), kLastLine);
}

std::optional<HeadRecord> parse_head_record(std::string_view text) {
  if (text.size() > kMostHeadRecordBytes || !text.starts_with(kFirstLine)) return std::nullopt;
  text.remove_prefix(kFirstLine.size());
  if (!text.starts_with('\n')) return std::nullopt;
  text.remove_prefix(1);
  HeadRecord record;
  std::string port;
  if (!take_line(text, "run_id", record.run_id) || !take_line(text, "host", record.host) ||
      !take_line(text, "port", port) || !take_line(text, "agent", record.agent) ||
      !take_line(text, "nonce", record.nonce) || text != kLastLine)
    return std::nullopt;
  const auto number = base::parse_integer(port);
  if (!number || *number < 1 || *number > 65535 || record.host.empty()) return std::nullopt;
  record.port = static_cast<std::uint16_t>(*number);
  return record;
}

}  // namespace dtrun::launcher
