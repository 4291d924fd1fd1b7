#include "hosts/host_order.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "dtrun/base/error.h"
#include "dtrun/base/json.h"

namespace dtrun::launcher {
namespace {

namespace json = boost::json;

constexpr const char* kSource = "the order of dtrun --hosts";

// Arguments and variables may hold any bytes, and JSON is UTF-8. So each byte is written as the
// character with that code point (Latin-1).
std::string letters_of_bytes(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    if (value < 0x80) {
      text += byte;
    } else {
      text += static_cast<char>(0xC0 | value >> 6);
      text += static_cast<char>(0x80 | (value & 0x3F));
    }
  }
  return text;
}

std::string bytes_of_letters(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto value = static_cast<unsigned char>(text[i]);
    if (value < 0x80 || i + 1 == text.size()) {
      bytes += text[i];
    } else {
      bytes +=
          static_cast<char>((value & 0x03) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3F));
    }
  }
  return bytes;
}

json::array array_of(const std::vector<std::string>& words) {
  json::array result;
  for (const std::string& word : words) result.emplace_back(letters_of_bytes(word));
  return result;
}

std::string text_at(const json::object& object, std::string_view name) {
  return bytes_of_letters(std::string_view(object.at(name).as_string()));
}

std::vector<std::string> words_at(const json::object& object, std::string_view name) {
  std::vector<std::string> words;
  for (const json::value& word : object.at(name).as_array())
    words.push_back(bytes_of_letters(std::string_view(word.as_string())));
  return words;
}

int number_at(const json::object& object, std::string_view name) {
  return static_cast<int>(object.at(name).as_int64());
}

json::object object_of(const HostNode& node) {
  return {{"host", letters_of_bytes(node.host)},
          {"node_rank", node.node_rank},
          {"ranks", node.ranks},
          {"here", node.place == HostPlace::kThisMachine}};
}

// If a member is missing or has another type, Boost.JSON throws an exception that is no Error.
template <typename Read>
auto read_json(std::string_view text, Read read) {
  const json::value value = base::parse_json(text, kSource);
  try {
    return read(value);
  } catch (const std::exception& error) {
    throw base::Error(base::ErrorCode::kProtocol, std::string(kSource) + " cannot be read",
                      error.what());
  }
}

}  // namespace

std::string HostOrder::to_line() const {
  json::object variables;
  for (const auto& [name, value] : environment)
    variables[letters_of_bytes(name)] = letters_of_bytes(value);
  json::array places;
  for (const HostNode& node : nodes) places.push_back(object_of(node));
  const json::object order = {{"version", version},
                              {"options", array_of(options)},
                              {"program", array_of(program)},
                              {"environment", std::move(variables)},
                              {"folder", letters_of_bytes(folder)},
                              {"node_count", node_count},
                              {"master_addr", letters_of_bytes(master_addr)},
                              {"remote_shell", array_of(remote_shell)},
                              {"remote_dtrun", letters_of_bytes(remote_dtrun)},
                              {"fanout", fanout},
                              {"join_timeout_ns", join_timeout.count()},
                              {"grace_ns", grace.count()},
                              {"nodes", std::move(places)}};
  return json::serialize(order) + "\n";
}

HostOrder HostOrder::parse(std::string_view line) {
  return read_json(line, [](const json::value& value) {
    const json::object& object = value.as_object();
    HostOrder order;
    order.version = text_at(object, "version");
    order.options = words_at(object, "options");
    order.program = words_at(object, "program");
    for (const auto& [name, text] : object.at("environment").as_object())
      order.environment[bytes_of_letters(std::string_view(name))] =
          bytes_of_letters(std::string_view(text.as_string()));
    order.folder = text_at(object, "folder");
    order.node_count = number_at(object, "node_count");
    order.master_addr = text_at(object, "master_addr");
    order.remote_shell = words_at(object, "remote_shell");
    order.remote_dtrun = text_at(object, "remote_dtrun");
    order.fanout = number_at(object, "fanout");
    order.join_timeout = std::chrono::nanoseconds(object.at("join_timeout_ns").as_int64());
    order.grace = std::chrono::nanoseconds(object.at("grace_ns").as_int64());
    for (const json::value& place : object.at("nodes").as_array()) {
      const json::object& node = place.as_object();
      order.nodes.push_back(
          {text_at(node, "host"), number_at(node, "node_rank"), text_at(node, "ranks"),
           node.at("here").as_bool() ? HostPlace::kThisMachine : HostPlace::kRemote});
    }
    order.nodes.at(0);
    return order;
  });
}

std::string failures_to_json(const std::vector<HostFailure>& failures) {
  json::array result;
  for (const HostFailure& failure : failures)
    result.push_back(json::object{{"host", letters_of_bytes(failure.host)},
                                  {"what", letters_of_bytes(failure.what)},
                                  {"why", letters_of_bytes(failure.why)},
                                  {"remedy", letters_of_bytes(failure.remedy)},
                                  {"code", failure.code}});
  return json::serialize(result);
}

std::vector<HostFailure> failures_of_json(std::string_view text) {
  return read_json(text, [](const json::value& value) {
    std::vector<HostFailure> failures;
    for (const json::value& entry : value.as_array()) {
      const json::object& failure = entry.as_object();
      failures.push_back({text_at(failure, "host"), text_at(failure, "what"),
                          text_at(failure, "why"), text_at(failure, "remedy"),
                          number_at(failure, "code")});
    }
    return failures;
  });
}

std::vector<std::vector<HostNode>> divided(const std::vector<HostNode>& nodes, int fanout) {
  std::vector<std::vector<HostNode>> groups;
  std::vector<HostNode> others;
  for (const HostNode& node : nodes)
    node.place == HostPlace::kThisMachine ? groups.push_back({node}) : others.push_back(node);
  const auto count = std::min(others.size(), static_cast<std::size_t>(fanout));
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = others.begin() + static_cast<std::ptrdiff_t>(others.size() * i / count);
    const auto end = others.begin() + static_cast<std::ptrdiff_t>(others.size() * (i + 1) / count);
    groups.emplace_back(begin, end);
  }
  return groups;
}

}  // namespace dtrun::launcher
