#include "dtrun/rendezvous/failure_report.h"

#include <fmt/core.h>

#include <boost/json/serialize.hpp>
#include <string_view>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/json.h"
#include "dtrun/base/utf8.h"

namespace dtrun::rendezvous {
namespace {

using base::Error;
using base::ErrorCode;
namespace json = boost::json;

Error malformed(const std::string& path, std::string why) {
  return Error(ErrorCode::kProtocol, fmt::format("{} is no failure report", path), std::move(why),
               "the worker that wrote it may have been killed while it did; see its own log");
}

std::int64_t integer_of(const json::value& value, const std::string& path, const char* name) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_string()) {
    const json::string& text = value.get_string();
    const auto number = base::parse_integer(std::string_view(text.data(), text.size()));
    if (number) return *number;
  }
  throw malformed(path, fmt::format("its {} is no whole number", name));
}

std::string string_of(const json::value& value, const std::string& path, const char* name) {
  if (!value.is_string()) throw malformed(path, fmt::format("its {} is no text", name));
  return std::string(value.get_string().data(), value.get_string().size());
}

// The object inside "message".
void read_details(const json::object& details, const std::string& path, FailureReport& report) {
  const json::value* message = details.if_contains("message");
  if (message == nullptr) throw malformed(path, "it has no message.message");
  report.message = string_of(*message, path, "message.message");
  if (const json::value* code = details.if_contains("errorCode"))
    report.error_code = static_cast<int>(integer_of(*code, path, "errorCode"));
  const json::value* extra = details.if_contains("extraInfo");
  if (extra == nullptr || !extra->is_object()) return;
  if (const json::value* stack = extra->get_object().if_contains("py_callstack"))
    report.call_stack = string_of(*stack, path, "py_callstack");
  if (const json::value* timestamp = extra->get_object().if_contains("timestamp"))
    report.timestamp = integer_of(*timestamp, path, "timestamp");
}

}  // namespace

void write_failure_report(const std::string& path, const FailureReport& report) {
  // An exception's text may hold any bytes. A JSON file may not: its readers would refuse the whole
  // file.
  json::object details{{"message", base::as_utf8(report.message)},
                       {"extraInfo",
                        {{"py_callstack", base::as_utf8(report.call_stack)},
                         {"timestamp", std::to_string(report.timestamp)}}}};
  if (report.error_code != 0) details["errorCode"] = report.error_code;
  base::write_file_atomically(path, json::serialize(json::object{{"message", details}}));
}

std::optional<FailureReport> read_failure_report(const std::string& path) {
  json::value document;
  try {
    document = base::read_json_file(path);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) return std::nullopt;
    throw;
  }
  const json::object* root = document.if_object();
  const json::value* message = root ? root->if_contains("message") : nullptr;
  if (message == nullptr) throw malformed(path, "it has no message");
  FailureReport report;
  if (message->is_object()) {
    read_details(message->get_object(), path, report);
  } else {
    report.message = string_of(*message, path, "message");
    if (const json::value* timestamp = root->if_contains("timestamp"))
      report.timestamp = integer_of(*timestamp, path, "timestamp");
  }
  return report;
}

}  // namespace dtrun::rendezvous
