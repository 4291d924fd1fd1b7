#include "dtrun/collectives/fingerprint.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace dtrun::collectives {

const char* op_kind_name(OpKind kind) {
  switch (kind) {
    case OpKind::none:
      return "none";
    case OpKind::broadcast:
      return "broadcast";
    case OpKind::all_reduce:
      return "all_reduce";
    case OpKind::reduce:
      return "reduce";
    case OpKind::all_gather:
      return "all_gather";
    case OpKind::gather:
      return "gather";
    case OpKind::scatter:
      return "scatter";
    case OpKind::reduce_scatter:
      return "reduce_scatter";
    case OpKind::all_to_all:
      return "all_to_all";
    case OpKind::barrier:
      return "barrier";
    case OpKind::send:
      return "send";
    case OpKind::receive:
      return "recv";
    case OpKind::split:
      return "split";
    case OpKind::monitored_barrier:
      return "monitored_barrier";
  }
  return "unknown";
}

bool is_reduction(OpKind kind) {
  return kind == OpKind::all_reduce || kind == OpKind::reduce || kind == OpKind::reduce_scatter;
}

bool is_message(OpKind kind) {
  return kind == OpKind::send || kind == OpKind::receive;
}

namespace {

bool has_tensors(OpKind kind) {
  return kind != OpKind::barrier && kind != OpKind::split && kind != OpKind::monitored_barrier;
}

bool counts_are_elements(OpKind kind) {
  return kind == OpKind::broadcast || kind == OpKind::all_reduce || kind == OpKind::reduce ||
         is_message(kind);
}

}  // namespace

bool Fingerprint::agrees_with(const Fingerprint& other) const {
  return sequence == other.sequence && kind == other.kind && dtype == other.dtype &&
         reduce_op == other.reduce_op && root == other.root && counts == other.counts &&
         shape == other.shape;
}

std::uint64_t Fingerprint::digest() const {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto* bytes = reinterpret_cast<const unsigned char*>(this);
  for (std::size_t i = 0; i < offsetof(Fingerprint, site); ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

std::string Fingerprint::describe() const {
  std::string text = fmt::format("{} #{}", op_kind_name(kind), sequence);
  if (has_tensors(kind)) {
    text += fmt::format(" ({}", tensors::dtype_short_name(dtype));
    if (counts_are_elements(kind)) {
      text += fmt::format(" x {}", counts);
    } else if (counts != 0) {
      text += fmt::format(" x {} in parts", counts & kMostElements);
    }
    if (is_reduction(kind)) text += fmt::format(", {}", reduce_op_name(reduce_op));
    if (root >= 0) text += fmt::format(", {} {}", is_message(kind) ? "peer" : "root", root);
    text += ")";
  }
  if (site[0] != '\0') text += fmt::format(" at {}", site);
  return text;
}

void set_site(Fingerprint& fingerprint, const base::CallSite& where) {
  std::string_view file = where.file_name();
  file.remove_prefix(std::min(file.size(), file.rfind('/') + 1));
  // The end of a long name says more than its start; the line must stay whole.
  constexpr std::size_t kLongestFile = sizeof(fingerprint.site) - 12;
  if (file.size() > kLongestFile) file.remove_prefix(file.size() - kLongestFile);
  const auto end =
      where.line() == 0
          ? fmt::format_to_n(fingerprint.site, sizeof(fingerprint.site) - 1, "{}", file)
          : fmt::format_to_n(fingerprint.site, sizeof(fingerprint.site) - 1, "{}:{}", file,
                             where.line());
  *end.out = '\0';
}

}  // namespace dtrun::collectives
