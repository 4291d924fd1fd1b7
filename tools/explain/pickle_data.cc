#include "explain/pickle_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/base/utf8.h"

namespace dtrun::explain {
namespace {

using base::Error;
using base::ErrorCode;
namespace json = boost::json;

constexpr char kProtocolOpcode = '\x80';
constexpr int kMostDepth = 64;
/// Of values and bytes of texts that are written out: a small pickle can name one large list many
/// times.
constexpr std::size_t kMostValues = std::size_t{1} << 23;

class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::string& source)
      : rest_(bytes), size_(bytes.size()), source_(source) {}

  json::value run() {
    for (;;) {
      const auto opcode = static_cast<unsigned char>(take(1)[0]);
      if (opcode == '.') return written_out(pop(), 0);
      step(opcode);
    }
  }

 private:
  /// Lists and dicts change after they were remembered, so values are told by their number.
  struct Value {
    json::value scalar;
    enum class Kind { scalar, list, dict, mark } kind = Kind::scalar;
    std::vector<std::size_t> items;  ///< of a dict: key, value, key, value, ...
  };
  using Kind = Value::Kind;

  Error malformed(const std::string& why) const {
    return Error(ErrorCode::kProtocol, fmt::format("{} is no pickle of plain data", source_),
                 fmt::format("{}, at byte {}", why, size_ - rest_.size()),
                 "PyTorch's flight recorder writes such files (TORCH_FR_DUMP_TEMP_FILE); others "
                 "are not read, because a pickle can run any code");
  }

  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) throw malformed("it ends too early");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  /// Little-endian.
  std::uint64_t take_number(std::size_t bytes) {
    const std::string_view taken = take(bytes);
    std::uint64_t number = 0;
    for (std::size_t i = bytes; i > 0; --i)
      number = number << 8 | static_cast<unsigned char>(taken[i - 1]);
    return number;
  }

  std::int64_t take_long() {
    const std::size_t bytes = take_number(1);
    if (bytes > 8) throw malformed("a number has more than 64 bits");
    if (bytes == 0) return 0;
    // Two's complement of so many bytes: the shifts extend the sign.
    const std::uint64_t number = take_number(bytes);
    const unsigned unused = 64 - 8 * static_cast<unsigned>(bytes);
    return static_cast<std::int64_t>(number << unused) >> unused;
  }

  double take_double() {
    const std::string_view taken = take(8);
    std::uint64_t bits = 0;
    for (const char byte : taken) bits = bits << 8 | static_cast<unsigned char>(byte);
    double number = 0;
    std::memcpy(&number, &bits, sizeof number);
    return number;
  }

  void push(Value value) {
    stack_.push_back(values_.size());
    values_.push_back(std::move(value));
  }
  void push_scalar(json::value scalar) { push({std::move(scalar), Kind::scalar, {}}); }
  void push_text(std::uint64_t bytes) { push_scalar(json::value(base::as_utf8(take(bytes)))); }

  std::size_t top() const {
    if (stack_.empty()) throw malformed("it takes a value that is not there");
    return stack_.back();
  }
  std::size_t pop() {
    const std::size_t number = top();
    stack_.pop_back();
    return number;
  }
  std::vector<std::size_t> pop_many(std::size_t count) {
    std::vector<std::size_t> items(count);
    for (std::size_t i = count; i > 0; --i) items[i - 1] = pop();
    return items;
  }
  std::vector<std::size_t> pop_to_mark() {
    std::vector<std::size_t> items;
    while (values_[top()].kind != Kind::mark) items.push_back(pop());
    pop();
    std::reverse(items.begin(), items.end());
    return items;
  }

  void push_tuple(std::vector<std::size_t> items) { push({nullptr, Kind::list, std::move(items)}); }
  void extend(const std::vector<std::size_t>& items, Kind kind) {
    Value& target = values_[top()];
    if (target.kind != kind) throw malformed("it adds to what is no list or dict");
    if (kind == Kind::dict && items.size() % 2 != 0) throw malformed("a key has no value");
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  void remember(std::uint64_t place) { memo_[place] = top(); }
  void recall(std::uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) throw malformed("it recalls what it has not remembered");
    stack_.push_back(found->second);
  }

  // The opcodes are those of Python's pickletools.py. What imports or calls anything is left out,
  // so no pickle can run code.
  void step(unsigned char opcode) {
    if (step_scalar(opcode) || step_container(opcode) || step_memo(opcode)) return;
    throw malformed(fmt::format("opcode 0x{:02x} is not for data", opcode));
  }

  bool step_scalar(unsigned char opcode) {
    switch (opcode) {
      case 'N':
        return push_scalar(nullptr), true;
      case 0x88:
        return push_scalar(true), true;
      case 0x89:
        return push_scalar(false), true;
      case 'J':
        return push_scalar(std::int64_t{static_cast<std::int32_t>(take_number(4))}), true;
      case 'K':
        return push_scalar(static_cast<std::int64_t>(take_number(1))), true;
      case 'M':
        return push_scalar(static_cast<std::int64_t>(take_number(2))), true;
      case 0x8a:
        return push_scalar(take_long()), true;
      case 'G':
        return push_scalar(take_double()), true;
      case 'X':
        return push_text(take_number(4)), true;
      case 0x8c:
        return push_text(take_number(1)), true;
      case 0x8d:
        return push_text(take_number(8)), true;
      default:
        return false;
    }
  }

  bool step_container(unsigned char opcode) {
    switch (opcode) {
      case '(':
        return push({nullptr, Kind::mark, {}}), true;
      case ']':
      case ')':
        return push({nullptr, Kind::list, {}}), true;
      case '}':
        return push({nullptr, Kind::dict, {}}), true;
      case 't':
        return push_tuple(pop_to_mark()), true;
      case 0x85:
        return push_tuple(pop_many(1)), true;
      case 0x86:
        return push_tuple(pop_many(2)), true;
      case 0x87:
        return push_tuple(pop_many(3)), true;
      case 'a':
        return extend(pop_many(1), Kind::list), true;
      case 'e':
        return extend(pop_to_mark(), Kind::list), true;
      case 's':
        return extend(pop_many(2), Kind::dict), true;
      case 'u':
        return extend(pop_to_mark(), Kind::dict), true;
      default:
        return false;
    }
  }

  bool step_memo(unsigned char opcode) {
    switch (opcode) {
      case 0x80:
        return take(1), true;  // the protocol's number
      case 0x95:
        return take(8), true;  // the length of a frame
      case 'q':
        return remember(take_number(1)), true;
      case 'r':
        return remember(take_number(4)), true;
      case 0x94:
        return remember(memo_.size()), true;
      case 'h':
        return recall(take_number(1)), true;
      case 'j':
        return recall(take_number(4)), true;
      default:
        return false;
    }
  }

  json::value written_out(std::size_t number, int depth) {
    if (depth > kMostDepth) throw malformed("its values are nested too deep");
    if (++written_ > kMostValues) throw malformed("it has too many values");
    const Value& value = values_[number];
    if (value.scalar.is_string()) written_ += value.scalar.get_string().size();
    if (value.kind == Kind::scalar) return value.scalar;
    if (value.kind == Kind::mark) throw malformed("a mark stands where a value should");
    if (value.kind == Kind::list) {
      json::array list;
      for (const std::size_t item : value.items) list.push_back(written_out(item, depth + 1));
      return list;
    }
    json::object dict;
    for (std::size_t i = 0; i < value.items.size(); i += 2)
      dict[key_of(values_[value.items[i]])] = written_out(value.items[i + 1], depth + 1);
    return dict;
  }

  std::string key_of(const Value& key) const {
    if (key.scalar.is_int64()) return std::to_string(key.scalar.get_int64());
    if (!key.scalar.is_string()) throw malformed("a key is neither a text nor a number");
    return std::string(key.scalar.get_string().data(), key.scalar.get_string().size());
  }

  std::string_view rest_;
  const std::size_t size_;
  const std::string& source_;
  std::vector<Value> values_;
  std::vector<std::size_t> stack_;
  std::map<std::uint64_t, std::size_t> memo_;
  std::size_t written_ = 0;
};

}  // namespace

bool looks_like_pickle(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == kProtocolOpcode;
}

json::value parse_pickle(std::string_view bytes, const std::string& source) {
  return PickleMachine(bytes, source).run();
}

}  // namespace dtrun::explain
