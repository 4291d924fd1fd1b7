#include "dtrun/dtensor/move/comm_counter.h"

#include <ostream>
#include <tuple>
#include <utility>

#include "dtrun/collectives/call_observer.h"
#include "layout/text_table.h"
#include "move/cause.h"

namespace dtrun::dtensor {
namespace {

thread_local CommSection* innermost_section = nullptr;

}  // namespace

CommSection::CommSection(std::string name) : name_(std::move(name)), outer_(innermost_section) {
  if (outer_ != nullptr) name_ = outer_->name_ + "." + name_;
  innermost_section = this;
}
CommSection::~CommSection() {
  innermost_section = outer_;
}

class CommCounter::Observer : public collectives::CallObserver {
 public:
  struct Key {
    std::string section, op, collective;
    auto operator<=>(const Key&) const = default;
  };

  void on_call(const collectives::ObservedCall& call) override {
    const Cause* const cause = Cause::outermost();
    counts[{innermost_section == nullptr ? "" : innermost_section->name_,
            cause == nullptr ? "" : cause->to_string(), collectives::op_kind_name(call.kind)}] +=
        {1, call.bytes_sent};
  }

  std::map<Key, CommCount> counts;
};

CommCounter::CommCounter() : observer_(std::make_unique<Observer>()) {}
CommCounter::~CommCounter() = default;

std::map<std::string, std::int64_t> CommCounter::get_comm_counts() const {
  std::map<std::string, std::int64_t> calls;
  for (const auto& [key, count] : observer_->counts) calls[key.collective] += count.calls;
  return calls;
}

CommCounts CommCounter::by_collective() const {
  CommCounts counts;
  for (const auto& [key, count] : observer_->counts) counts[key.collective] += count;
  return counts;
}

std::map<std::string, CommCounts> CommCounter::by_operator() const {
  std::map<std::string, CommCounts> counts;
  for (const auto& [key, count] : observer_->counts) counts[key.op][key.collective] += count;
  return counts;
}

std::map<std::string, CommCounts> CommCounter::by_section() const {
  std::map<std::string, CommCounts> counts;
  for (const auto& [key, count] : observer_->counts) counts[key.section][key.collective] += count;
  return counts;
}

CommCount CommCounter::total() const {
  CommCount total;
  for (const auto& [key, count] : observer_->counts) total += count;
  return total;
}

void CommCounter::reset() {
  observer_->counts.clear();
}

std::string CommCounter::to_string() const {
  using Align = TextTable::Align;
  TextTable table({Align::left, Align::left, Align::left, Align::right, Align::right});
  table.add({"section", "for", "collective", "calls", "bytes sent"});
  for (const auto& [key, count] : observer_->counts) {
    table.add({key.section.empty() ? "-" : key.section, key.op.empty() ? "a group's call" : key.op,
               key.collective, grouped_digits(count.calls), grouped_digits(count.bytes)});
  }
  table.add({"total", "", "", grouped_digits(total().calls), grouped_digits(total().bytes)});
  return table.text();
}

std::ostream& operator<<(std::ostream& out, const CommCounter& counter) {
  return out << counter.to_string();
}

}  // namespace dtrun::dtensor
