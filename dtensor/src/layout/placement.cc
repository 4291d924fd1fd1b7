#include "dtrun/dtensor/layout/placement.h"

#include <charconv>

#include "dtrun/base/error.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

Error unreadable(std::string_view text) {
  return Error(ErrorCode::kInvalidArgument,
               "cannot read '" + std::string(text) + "' as a placement",
               "a placement is S(dim), R or P(op)", "for example S(0), S(-1), R, P(sum) or P(max)");
}

}  // namespace

std::string Placement::to_string() const {
  switch (kind_) {
    case Kind::shard:
      return "S(" + std::to_string(dim_) + ")";
    case Kind::partial:
      return "P(" + std::string(collectives::reduce_op_name(op_)) + ")";
    case Kind::replicate:
      break;
  }
  return "R";
}

std::string Placement::repr() const {
  switch (kind_) {
    case Kind::shard:
      return "Shard(dim=" + std::to_string(dim_) + ")";
    case Kind::partial:
      return "Partial(" + std::string(collectives::reduce_op_name(op_)) + ")";
    case Kind::replicate:
      break;
  }
  return "Replicate()";
}

Placement Placement::parse(std::string_view text) {
  if (text == "R") return Replicate();
  if (text.size() < 4 || text[1] != '(' || text.back() != ')') throw unreadable(text);
  const std::string_view inner = text.substr(2, text.size() - 3);
  if (text[0] == 'P') return Partial(collectives::parse_reduce_op(inner));
  if (text[0] != 'S') throw unreadable(text);
  int dim = 0;
  const char* const end = inner.data() + inner.size();
  const std::from_chars_result read = std::from_chars(inner.data(), end, dim);
  if (read.ec != std::errc() || read.ptr != end) throw unreadable(text);
  return Shard(dim);
}

Placements without_partials(Placements placements) {
  for (Placement& placement : placements) {
    if (placement.is_partial()) placement = Replicate();
  }
  return placements;
}

std::string placements_to_string(const Placements& placements) {
  std::string text = "[";
  for (const Placement& placement : placements) {
    if (text.size() > 1) text += ", ";
    text += placement.to_string();
  }
  return text + "]";
}

}  // namespace dtrun::dtensor
