#include "dtrun/dtensor/move/comm_counter.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <memory>
#include <ostream>
#include <utility>

#include "dtrun/collectives/call_observer.h"
#include "layout/text_table.h"
#include "move/cause.h"
#include "move/section.h"

namespace dtrun::dtensor {
namespace {

base::Counted<Section> section_within(const Section* outer, std::string name) {
  base::Counted<Section> section(new Section);
  section->path = outer == nullptr ? std::move(name) : outer->path + "." + name;
  if (outer != nullptr) {
    section->modules = outer->modules;
    section->module_path = outer->module_path;
  }
  return section;
}

}  // namespace

constinit thread_local Section* StandingSection::innermost_ = nullptr;

CommSection::CommSection(std::string name)
    : standing_(std::make_unique<StandingSection>(
          section_within(StandingSection::innermost(), std::move(name)))) {}
CommSection::~CommSection() = default;

class CommCounter::Observer : public collectives::CallObserver {
 public:
  struct Key {
    std::string section, op, collective;
    Cause::Way way = Cause::Way::forward;
    auto operator<=>(const Key&) const = default;
  };

  void on_call(const collectives::ObservedCall& call) override {
    const Cause* const cause = Cause::outermost();
    const Section* const section = StandingSection::innermost();
    const bool has_cause = cause != nullptr;
    counts[{section == nullptr ? "" : section->path, has_cause ? cause->to_string() : "",
            collectives::op_kind_name(call.kind),
            has_cause ? cause->way() : Cause::Way::forward}] += {1, call.bytes_sent};
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

std::map<std::string, PassCounts> CommCounter::by_module() const {
  std::map<std::string, PassCounts> counts;
  for (const auto& [key, count] : observer_->counts) {
    const auto add_to = [&, &way = key.way, &collective = key.collective,
                         &one = count](const std::string& module) {
      PassCounts& passes = counts[module];
      (way == Cause::Way::forward ? passes.forward : passes.backward)[collective] += one;
    };
    add_to("Global");
    for (std::string path = key.section; !path.empty();) {
      add_to(path);
      const std::size_t dot = path.rfind('.');
      path.resize(dot == std::string::npos ? 0 : dot);
    }
  }
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

std::string CommCounter::to_json() const {
  boost::json::array counts;
  for (const auto& [key, count] : observer_->counts) {
    counts.push_back(
        boost::json::object{{"section", key.section},
                            {"for", key.op},
                            {"pass", key.way == Cause::Way::forward ? "forward" : "backward"},
                            {"collective", key.collective},
                            {"calls", count.calls},
                            {"bytes_sent", count.bytes}});
  }
  return boost::json::serialize(boost::json::object{
      {"counts", std::move(counts)}, {"calls", total().calls}, {"bytes_sent", total().bytes}});
}

std::ostream& operator<<(std::ostream& out, const CommCounter& counter) {
  return out << counter.to_string();
}

}  // namespace dtrun::dtensor
