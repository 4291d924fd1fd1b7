#include "dtrun/dtensor/plan/link_file.h"

#include <boost/json/object.hpp>
#include <charconv>
#include <optional>

#include "dtrun/base/error.h"
#include "dtrun/base/json.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

[[noreturn]] void refuse_link(std::string_view text) {
  throw Error(ErrorCode::kInvalidArgument, "'" + std::string(text) + "' is no link", "",
              "shm, device, network, or LATENCY:RATE in seconds and bytes a second: 3e-6:4e9");
}

double positive_number(std::string_view whole, std::string_view text) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = read.ec == std::errc() && read.ptr == text.data() + text.size();
  if (!is_number || !(value > 0 && value < 1e18)) refuse_link(whole);
  return value;
}

std::optional<double> number_of(const boost::json::object& link, std::string_view field) {
  const boost::json::value* const value = link.if_contains(field);
  if (value == nullptr || !value->is_number() || !(value->to_number<double>() > 0)) return {};
  return value->to_number<double>();
}

LinkRate link_of(const std::string& path, std::string_view axis, const boost::json::value& value) {
  std::optional<double> latency, rate;
  if (value.is_object()) {
    latency = number_of(value.get_object(), "latency");
    rate = number_of(value.get_object(), "bytes_per_second");
  }
  if (latency && rate) return {*latency, *rate};
  throw Error(ErrorCode::kInvalidArgument, path + " has no link at \"" + std::string(axis) + "\"",
              "latency and bytes_per_second are numbers above 0",
              R"({"dp": {"latency": 2e-5, "bytes_per_second": 1e9}})");
}

std::string name_of(std::size_t axis, const std::vector<std::string>& axis_names) {
  return axis_names.empty() ? std::to_string(axis) : axis_names[axis];
}

/// By the axis' name, its number, or "*"; null: none.
const boost::json::value* find_link(const boost::json::object& file, std::size_t axis,
                                    const std::vector<std::string>& axis_names,
                                    LinkKeys asked = LinkKeys::all) {
  std::vector<std::string> keys = {name_of(axis, axis_names)};
  if (asked == LinkKeys::all) keys.push_back(std::to_string(axis));
  if (asked != LinkKeys::own_name) keys.emplace_back("*");
  for (const std::string& key : keys) {
    // What else lies in a cost table is no link.
    if (key == collectives::kLimitsKey) continue;
    if (const boost::json::value* const link = file.if_contains(key)) return link;
  }
  return nullptr;
}

}  // namespace

LinkRate parse_link(std::string_view text) {
  if (text == "shm") return kSharedMemoryLink;
  if (text == "device") return kDeviceLink;
  if (text == "network") return kNetworkLink;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) refuse_link(text);
  return {positive_number(text, text.substr(0, colon)),
          positive_number(text, text.substr(colon + 1))};
}

std::vector<LinkRate> read_links(const std::string& path, std::size_t axes,
                                 const std::vector<std::string>& axis_names) {
  const boost::json::value file = base::read_json_file(path);
  if (!file.is_object()) link_of(path, "", file);
  std::vector<LinkRate> links;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const boost::json::value* const link = find_link(file.get_object(), axis, axis_names);
    links.push_back(
        link_of(path, name_of(axis, axis_names), link == nullptr ? boost::json::value() : *link));
  }
  return links;
}

void take_links(const collectives::CostTable& costs, const std::vector<std::string>& axis_names,
                LinkKeys keys, std::vector<LinkRate>& links) {
  if (!costs.is_given()) return;
  const boost::json::value file = base::parse_json(costs.text(), costs.path());
  for (std::size_t axis = 0; axis < links.size(); ++axis)
    if (const boost::json::value* const link = find_link(file.get_object(), axis, axis_names, keys))
      links[axis] = link_of(costs.path(), name_of(axis, axis_names), *link);
}

}  // namespace dtrun::dtensor
