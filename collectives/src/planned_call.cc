#include "planned_call.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "dtrun/base/error.h"

namespace dtrun::collectives {
namespace {

struct Lists {
  std::size_t inputs, outputs;
};

/// How many buffers a rank of so many has (backend.h). nullopt: it is no collective.
std::optional<Lists> lists_of(OpKind kind, bool is_root, std::size_t ranks) {
  switch (kind) {
    case OpKind::broadcast:
      return is_root ? Lists{1, 0} : Lists{0, 1};
    case OpKind::all_reduce:
      return Lists{1, 1};
    case OpKind::reduce:
      return Lists{1, is_root ? 1U : 0U};
    case OpKind::all_gather:
      return Lists{1, ranks};
    case OpKind::gather:
      return Lists{1, is_root ? ranks : 0};
    case OpKind::scatter:
      return Lists{is_root ? ranks : 0, 1};
    case OpKind::reduce_scatter:
      return Lists{ranks, 1};
    case OpKind::all_to_all:
      return Lists{ranks, ranks};
    case OpKind::barrier:
      return Lists{0, 0};
    default:
      return std::nullopt;
  }
}

bool has_root(OpKind kind) {
  return kind == OpKind::broadcast || kind == OpKind::reduce || kind == OpKind::gather ||
         kind == OpKind::scatter;
}

[[noreturn]] void refuse(const PlannedCall& call, const std::string& what, const char* try_this) {
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    fmt::format("a planned {}: {}", op_kind_name(call.kind), what), "", try_this);
}

}  // namespace

void require_sound(const PlannedCall& call, int rank, int ranks) {
  const auto lists = lists_of(call.kind, rank == call.root, static_cast<std::size_t>(ranks));
  if (!lists)
    refuse(call, "it is no collective whose bytes can be told", "one that backend.h's table has");
  if (has_root(call.kind) && (call.root < 0 || call.root >= ranks))
    refuse(call, fmt::format("root {} of {} ranks", call.root, ranks), "one of the group's ranks");
  if (call.inputs.size() != lists->inputs || call.outputs.size() != lists->outputs)
    refuse(call,
           fmt::format("{} inputs and {} outputs on rank {} of {}", call.inputs.size(),
                       call.outputs.size(), rank, ranks),
           "as many as backend.h's table has for this rank");
  const auto is_negative = [](std::int64_t count) { return count < 0; };
  if (std::ranges::any_of(call.inputs, is_negative) ||
      std::ranges::any_of(call.outputs, is_negative))
    refuse(call, "a buffer of less than no elements", "counts from 0");
}

}  // namespace dtrun::collectives
