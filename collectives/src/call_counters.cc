#include "dtrun/collectives/call_counters.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <ostream>

#include "dtrun/base/deadline.h"

namespace dtrun::collectives {
namespace {

using Cells = std::array<std::string, 7>;

Cells cells_of(const CallCount& count) {
  const auto time = [&](std::chrono::nanoseconds span) {
    return count.timed == 0 ? "-" : base::format_duration(span);
  };
  const auto timed = static_cast<std::int64_t>(std::max<std::uint64_t>(count.timed, 1));
  return {fmt::format("{}{}", op_kind_name(count.kind),
                      count.failed == 0 ? "" : fmt::format(" ({} failed)", count.failed)),
          std::to_string(count.calls),
          std::to_string(count.bytes),
          std::to_string(count.timed),
          time(count.total),
          time(count.total / timed),
          time(count.longest)};
}

}  // namespace

CallCount CallCounters::of(OpKind kind) const {
  const auto found = std::ranges::find(kinds, kind, &CallCount::kind);
  return found == kinds.end() ? CallCount{.kind = kind} : *found;
}

CallCounters CallCounters::since(const CallCounters& earlier) const {
  CallCounters result = *this;
  for (CallCount& count : result.kinds) {
    const CallCount before = earlier.of(count.kind);
    count.calls -= before.calls;
    count.failed -= before.failed;
    count.bytes -= before.bytes;
    count.timed -= before.timed;
    count.total -= before.total;
  }
  std::erase_if(result.kinds, [](const CallCount& count) {
    return count.calls == 0 && count.timed == 0 && count.failed == 0;
  });
  return result;
}

std::string CallCounters::to_string() const {
  std::vector<Cells> rows = {{"kind", "calls", "bytes", "timed", "total", "mean", "longest"}};
  for (const CallCount& count : kinds) rows.push_back(cells_of(count));
  std::array<std::size_t, std::tuple_size_v<Cells>> widths{};
  for (const Cells& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text = fmt::format("group '{}', rank {} of {}\n", group, rank, size);
  for (const Cells& row : rows) {
    text += fmt::format("{:<{}}", row[0], widths[0]);
    for (std::size_t i = 1; i < row.size(); ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
    text += '\n';
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const CallCounters& counters) {
  return out << counters.to_string();
}

}  // namespace dtrun::collectives
