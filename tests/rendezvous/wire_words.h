// The wire protocol written down for tests: "SET 02 0*7 '/k' 01 0*7 'v'". A word in capitals is an
// operation, in the numbering of the dialect it is spoken in; the rest is as in served_store.h.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "rendezvous/served_store.h"

namespace dtrun::rendezvous {

enum Dialect : std::size_t { kModernWire, kWire19To20, kWire21 };
constexpr Dialect kDialects[] = {kModernWire, kWire19To20, kWire21};

/// PyTorch's numbers: of 2.2 and later, of 1.9 to 2.0, of 2.1; -1 where there is none.
inline const std::map<std::string, std::array<int, 3>>& operation_numbers() {
  static const std::map<std::string, std::array<int, 3>> kNumbers = {{"VALIDATE", {0, -1, -1}},
                                                                     {"SET", {1, 0, 0}},
                                                                     {"COMPARE_SET", {2, 1, 1}},
                                                                     {"GET", {3, 2, 2}},
                                                                     {"ADD", {4, 3, 3}},
                                                                     {"CHECK", {5, 4, 4}},
                                                                     {"WAIT", {6, 5, 5}},
                                                                     {"NUM_KEYS", {7, 6, 6}},
                                                                     {"DELETE_KEY", {8, 8, 7}},
                                                                     {"APPEND", {9, -1, 8}},
                                                                     {"MULTI_GET", {10, -1, 9}},
                                                                     {"MULTI_SET", {11, -1, 10}},
                                                                     {"CANCEL_WAIT", {12, -1, 11}},
                                                                     {"PING", {13, -1, -1}},
                                                                     {"QUEUE_PUSH", {14, -1, -1}},
                                                                     {"QUEUE_POP", {15, -1, -1}},
                                                                     {"QUEUE_LEN", {16, -1, -1}},
                                                                     {"LIST_KEYS", {17, -1, -1}},
                                                                     {"BARRIER", {18, -1, -1}}};
  return kNumbers;
}

/// nullopt: the dialect has no such operation.
inline std::optional<std::string> wire(Dialect dialect, const std::string& text) {
  std::string translated;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    if (text[i] == '\'') {
      end = text.find('\'', i + 1) + 1;
    } else if (text[i] >= 'A' && text[i] <= 'Z') {
      end = std::min(text.find(' ', i), text.size());
      const int code = operation_numbers().at(text.substr(i, end - i))[dialect];
      if (code < 0) return std::nullopt;
      char digits[16];
      std::snprintf(digits, sizeof digits, "%02x", code);
      translated += digits;
      i = end;
      continue;
    }
    translated += text.substr(i, end - i);
    i = end;
  }
  return bytes(translated);
}

/// A client that speaks one dialect. Of legacy ones nothing opens the conversation.
class WireClient : public RawClient {
 public:
  WireClient(std::uint16_t port, Dialect dialect) : RawClient(port), dialect_(dialect) {
    if (dialect == kModernWire) send(bytes("00 ce f7 85 3c"));
  }
  Dialect dialect() const { return dialect_; }

  void say(const std::string& text) { send(wire(dialect_, text).value()); }
  void hear(const std::string& reply, const std::string& why = "") {
    const std::string expected = bytes(reply);
    EXPECT_EQ(hex(receive(expected.size())), hex(expected)) << why;
  }
  void ask(const std::string& text, const std::string& reply) {
    say(text);
    hear(reply, text);
  }
  /// A round trip that every dialect knows: nothing more had come than was heard.
  void in_step() { ask("CHECK 01 0*7 04 0*7 'none'", "01"); }
  /// Whatever others sent before this call has been served when it returns: the first round trip
  /// may be served in the turn in which their bytes are seen, the second one cannot.
  void let_others_be_served() {
    in_step();
    in_step();
  }

 private:
  Dialect dialect_;
};

}  // namespace dtrun::rendezvous
