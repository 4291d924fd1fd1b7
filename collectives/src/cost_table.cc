#include "dtrun/collectives/cost_table.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <utility>
#include <vector>

#include "arguments.h"
#include "dtrun/base/error.h"
#include "dtrun/base/json.h"

namespace dtrun::collectives {
namespace {

using base::Error;
using base::ErrorCode;

struct Limit {
  std::string_view name;
  std::size_t WayLimits::*member;
  std::size_t least;
  std::size_t most;
};

constexpr std::size_t kMostLimit = std::size_t{1} << 40;
/// What travels in rounds is kept for all ranks by each.
constexpr std::size_t kMostRoundsBytes = 1 << 20;
constexpr Limit kLimits[] = {
    // A rank's ring of payloads holds some that are as many times longer as posts may be.
    {"post_bytes", &WayLimits::post_bytes, 0, kDefaultLimits.post_bytes},
    {"all_posts_bytes", &WayLimits::all_posts_bytes, 0, kMostLimit},
    {"whole_reduce_bytes", &WayLimits::whole_reduce_bytes, 0, kMostLimit},
    {"machines_bytes", &WayLimits::machines_bytes, 1, kMostLimit},
    {"rounds_bytes", &WayLimits::rounds_bytes, 0, kMostRoundsBytes},
    {"all_rounds_bytes", &WayLimits::all_rounds_bytes, 0, kMostLimit},
};

constexpr const char* kRemedy = "let `dtrun-bench tune` write it anew";

[[noreturn]] void refuse(const std::string& path, const std::string& what, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("the cost table {} {}", path, what), why,
              kRemedy);
}

const Limit& limit_of(const std::string& path, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Limit& limit : kLimits) {
    if (limit.name == name) return limit;
    names.push_back(limit.name);
  }
  refuse(path, fmt::format("has an unknown limit \"{}\"", name),
         fmt::format("the limits are {}", fmt::join(names, ", ")));
}

std::size_t value_of(const std::string& path, const Limit& limit, const boost::json::value& value) {
  if (value.is_int64() && value.get_int64() >= 0) {
    const auto bytes = static_cast<std::size_t>(value.get_int64());
    if (bytes >= limit.least && bytes <= limit.most) return bytes;
  }
  refuse(path, fmt::format("has {} as \"{}\"", boost::json::serialize(value), limit.name),
         fmt::format("it is a number of bytes from {} to {}", limit.least, limit.most));
}

}  // namespace

CostTable CostTable::parse(std::string text, std::string path) {
  CostTable table;
  const boost::json::value file = base::parse_json(text, path);
  if (!file.is_object()) refuse(path, "is no object", "it has a link for each axis of a mesh");
  if (const boost::json::value* limits = file.get_object().if_contains(kLimitsKey)) {
    if (!limits->is_object())
      refuse(path, fmt::format("has no object as \"{}\"", kLimitsKey), "it names limits");
    for (const auto& [name, value] : limits->get_object()) {
      const Limit& limit = limit_of(path, name);
      table.limits_.*limit.member = value_of(path, limit, value);
    }
  }
  table.text_ = std::move(text);
  table.path_ = std::move(path);
  return table;
}

CostTable CostTable::read(const std::string& path) {
  // As it is compared: two files that say the same in other words are one table.
  return parse(boost::json::serialize(base::read_json_file(path)), path);
}

CostTable CostTable::unusable(std::string path, std::string why) {
  CostTable table;
  table.text_ = "unusable: " + std::move(why);
  table.path_ = std::move(path) + ", which it cannot use";
  return table;
}

std::uint64_t CostTable::hash() const {
  return is_given() ? hash_bytes(text_) : 0;
}

std::string json_of(const WayLimits& limits) {
  std::string text;
  for (const Limit& limit : kLimits)
    text +=
        fmt::format("{}\"{}\": {}", text.empty() ? "{" : ", ", limit.name, limits.*limit.member);
  return text + "}";
}

}  // namespace dtrun::collectives
