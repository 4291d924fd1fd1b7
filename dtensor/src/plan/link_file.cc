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
  const boost::json::object& given = file.get_object();
  std::vector<LinkRate> links;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const std::string number = std::to_string(axis);
    const std::string name = axis_names.empty() ? number : axis_names[axis];
    const boost::json::value* link = given.if_contains(name);
    if (link == nullptr) link = given.if_contains(number);
    if (link == nullptr) link = given.if_contains("*");
    links.push_back(link_of(path, name, link == nullptr ? boost::json::value() : *link));
  }
  return links;
}

}  // namespace dtrun::dtensor
