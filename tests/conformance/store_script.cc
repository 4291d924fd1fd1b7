#include "conformance/store_script.h"

#include <algorithm>
#include <cstdint>

namespace dtrun::conformance {
namespace {

std::string number(std::uint64_t value) {
  std::string result;
  for (int i = 0; i < 8; ++i) result += static_cast<char>(value >> 8 * i & 0xff);
  return result;
}

std::string text(const std::string& content) {
  return number(content.size()) + content;
}

std::string list(const std::vector<std::string>& names) {
  std::string result = number(names.size());
  for (const std::string& name : names) result += text(name);
  return result;
}

}  // namespace

std::string StoreScript::key() {
  const std::string name = prefix_ + static_cast<char>('a' + below(6));
  used_keys_.insert(name);
  return name;
}

std::string StoreScript::queue() {
  const std::size_t which = below(3);
  const std::string name = prefix_ + "queue" + static_cast<char>('0' + which) + "." +
                           std::to_string(queue_generation_[which]);
  used_queues_.insert(name);
  return name;
}

std::string StoreScript::value() {
  switch (below(8)) {
    case 0:
      return "";
    case 1:
      return std::string(4000 + below(300), static_cast<char>(random_()));
    case 2:
      return std::string(1 + below(40000), 'x');
    case 3: {
      std::string bytes;
      for (std::size_t i = below(20); i > 0; --i) bytes += static_cast<char>(random_());
      return bytes;
    }
    case 4:
      return " " + std::to_string(below(100)) + "junk";
    default:
      return std::to_string(static_cast<int>(below(2000)) - 1000);
  }
}

std::vector<std::string> StoreScript::keys(std::size_t most) {
  std::vector<std::string> names;
  for (std::size_t i = below(most + 1); i > 0; --i) names.push_back(key());
  return names;
}

bool StoreScript::is_awaited(const std::string& name) const {
  return std::any_of(std::begin(waits_), std::end(waits_),
                     [&](const auto& names) { return names.count(name) > 0; });
}

ScriptRequest StoreScript::key_request(std::size_t kind) {
  const std::string name = below(12) == 0 ? queue() : key();
  switch (kind) {
    case 0:
      return {"\x03" + text(name), ReplyForm::kText};
    case 1:
      return {"\x08" + text(name), ReplyForm::kNumber};
    case 2: {
      std::vector<std::string> names = keys(4);
      if (below(4) == 0) names.push_back(name);
      return {"\x05" + list(names), ReplyForm::kByte};
    }
    case 3: {
      std::vector<std::string> names = keys(below(20) == 0 ? 300 : 4);
      return {"\x0a" + list(names), ReplyForm::kTexts, names.size()};
    }
    case 4:
      return {"\x07", ReplyForm::kNumber};
    case 5:
      return {"\x11", ReplyForm::kList};
    default:
      return {"\x0d" + number(random_()).substr(0, 4), ReplyForm::kByte};
  }
}

ScriptRequest StoreScript::queue_request() {
  const std::string name = queue();
  switch (below(4)) {
    case 0:
      return {"\x0f" + text(name), ReplyForm::kQueueFront};
    case 1:
      return {"\x10" + text(name), ReplyForm::kNumber};
    default:
      return {"\x0e" + text(name) + text(value()), ReplyForm::kNone};
  }
}

ScriptRequest StoreScript::request() {
  const std::size_t kind = below(20);
  if (kind >= 13) return queue_request();
  if (kind < 7) return key_request(kind);
  const std::string name = key();
  switch (kind) {
    case 7:
    case 8:
      return {"\x01" + text(name) + text(value()), ReplyForm::kNone};
    case 9:
      return {"\x09" + text(name) + text(value()), ReplyForm::kNone};
    case 10: {
      std::string pairs;
      const std::vector<std::string> names = keys(4);
      for (const std::string& each : names) pairs += text(each) + text(value());
      return {"\x0b" + number(names.size()) + pairs, ReplyForm::kNone};
    }
    case 11: {
      // A counter of its own, so that it is a number as a rule.
      const std::string counter = prefix_ + static_cast<char>('m' + below(2));
      used_keys_.insert(counter);
      return {"\x04" + text(counter) + number(below(1000) - 500), ReplyForm::kNumber};
    }
    default: {
      if (is_awaited(name)) return {"\x03" + text(name), ReplyForm::kText};
      const std::string expected = below(2) == 0 ? "" : std::to_string(below(3));
      return {"\x02" + text(name) + text(expected) + text(std::to_string(below(3))),
              ReplyForm::kText};
    }
  }
}

ScriptRequest StoreScript::fatal_request() {
  const std::string name = prefix_ + "text";
  used_keys_.insert(name);
  switch (below(5)) {
    case 0:
      return {"\x01" + text(name) + text("abc") + "\x04" + text(name) + number(1),
              ReplyForm::kClosed};
    case 1:
      return {"\x01" + text(name) + text("99999999999999999999") + "\x04" + text(name) + number(1),
              ReplyForm::kClosed};
    case 2:
      return {"\x03" + number(8193), ReplyForm::kClosed};
    case 3:
      return {"\x01" + text(name) + number((8 << 20) + 1), ReplyForm::kClosed};
    default:
      return {std::string(1, static_cast<char>(19 + below(200))), ReplyForm::kClosed};
  }
}

ScriptRequest StoreScript::wait(std::size_t client) {
  std::vector<std::string> names = keys(3);
  if (below(3) == 0) {
    const std::string name = queue();
    if (!is_awaited(name)) names = {name};
  }
  waits_[client] = {names.begin(), names.end()};
  return {"\x06" + list(names), ReplyForm::kRelease};
}

ScriptStep StoreScript::next() {
  ScriptStep step;
  step.client = below(kClients);
  if (below(60) == 0) {
    step.reconnects = true;
    waits_[step.client].clear();
  }
  if (waits(step.client)) {
    step.requests.push_back({"\x0c", ReplyForm::kCancel});
    waits_[step.client].clear();
  } else if (below(8) == 0) {
    step.requests.push_back(wait(step.client));
  } else if (below(100) == 0) {
    step.requests.push_back(fatal_request());
  } else {
    for (std::size_t i = 1 + (below(3) == 0 ? below(6) : 0); i > 0; --i)
      step.requests.push_back(request());
  }
  std::size_t size = 0;
  for (const ScriptRequest& each : step.requests) size += each.bytes.size();
  if (step.requests.back().form != ReplyForm::kClosed && below(3) == 0) {
    for (std::size_t i = 1 + below(4); i > 0; --i) step.cuts.push_back(below(size));
    std::sort(step.cuts.begin(), step.cuts.end());
  }
  return step;
}

void StoreScript::released(std::size_t client) {
  // That push has used up the queue's name.
  for (const std::string& name : waits_[client])
    for (std::size_t which = 0; which < 3; ++which)
      if (name == prefix_ + "queue" + static_cast<char>('0' + which) + "." +
                      std::to_string(queue_generation_[which]))
        ++queue_generation_[which];
  waits_[client].clear();
}

ScriptStep StoreScript::last() {
  ScriptStep step;
  step.reconnects = true;
  for (auto& names : waits_) names.clear();
  for (const std::string& name : used_keys_)
    step.requests.push_back({"\x08" + text(name), ReplyForm::kNumber});
  for (const std::string& name : used_queues_)
    for (int i = 0; i < 40; ++i)
      step.requests.push_back({"\x0f" + text(name), ReplyForm::kQueueFront});
  step.requests.push_back({"\x07", ReplyForm::kNumber});
  step.requests.push_back({"\x11", ReplyForm::kList});
  return step;
}

}  // namespace dtrun::conformance
