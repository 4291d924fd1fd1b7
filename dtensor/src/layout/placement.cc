#include "dtrun/dtensor/layout/placement.h"

#include <algorithm>
#include <charconv>

#include "dtrun/base/error.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

Error unreadable(std::string_view text) {
  return Error(ErrorCode::kInvalidArgument,
               "cannot read '" + std::string(text) + "' as a placement",
               "a placement is S(dim), S(dim: sizes), R or P(op)",
               "for example S(0), S(-1), S(0: 3,0,5), R, P(sum) or P(max)");
}

std::string joined(const std::vector<std::int64_t>& sizes, const std::string& between) {
  std::string text;
  for (const std::int64_t size : sizes)
    text += (text.empty() ? "" : between) + std::to_string(size);
  return text;
}

template <typename Number>
Number number_in(std::string_view text, std::string_view placement) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  Number number = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end) throw unreadable(placement);
  return number;
}

}  // namespace

std::string Placement::to_string() const {
  switch (kind_) {
    case Kind::shard:
      return "S(" + std::to_string(dim_) + (is_ragged() ? ": " + joined(sizes(), ",") : "") + ")";
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
      return "Shard(dim=" + std::to_string(dim_) +
             (is_ragged() ? ", sizes=[" + joined(sizes(), ", ") + "]" : "") + ")";
    case Kind::partial:
      return "Partial(" + std::string(collectives::reduce_op_name(op_)) + ")";
    case Kind::replicate:
      break;
  }
  return "Replicate()";
}

void refuse_partial_products() {
  throw Error(ErrorCode::kInvalidArgument, "no tensor is Partial(premul_sum)",
              "the factor belongs to a call of a group, not to a tensor",
              "multiply the tensor and use Partial(sum)");
}

Placement Placement::parse(std::string_view text) {
  if (text == "R") return Replicate();
  if (text.size() < 4 || text[1] != '(' || text.back() != ')') throw unreadable(text);
  const std::string_view inner = text.substr(2, text.size() - 3);
  if (text[0] == 'P') return Partial(collectives::parse_reduce_op(inner));
  if (text[0] != 'S') throw unreadable(text);
  const std::size_t colon = inner.find(':');
  const int dim = number_in<int>(inner.substr(0, colon), text);
  if (colon == std::string_view::npos) return Shard(dim);
  std::vector<std::int64_t> sizes;
  for (std::size_t start = colon + 1; start <= inner.size();) {
    const std::size_t comma = std::min(inner.find(',', start), inner.size());
    sizes.push_back(number_in<std::int64_t>(inner.substr(start, comma - start), text));
    start = comma + 1;
  }
  return Shard(dim, std::move(sizes));
}

Placement Shard(int dim, std::vector<std::int64_t> sizes) {
  return {Placement::Kind::shard, dim, ReduceOp::sum, Cut::of(std::move(sizes))};
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
