#include "etcd/etcd_messages.h"

#include <fmt/core.h>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "dtrun/base/base64.h"
#include "dtrun/base/env.h"
#include "dtrun/base/error.h"

namespace dtrun::rendezvous {
namespace {

namespace json = boost::json;
using base::Error;
using base::ErrorCode;

json::string_view view(std::string_view text) {
  return {text.data(), text.size()};
}

Error unlike_etcd(std::string_view name, const char* what) {
  return Error(ErrorCode::kProtocol, "a reply is not as etcd's are",
               fmt::format("its field '{}' is {}", name, what),
               "check the endpoint: another program may listen there");
}

std::string etcd_bytes(const json::object& object, std::string_view name) {
  std::optional<std::string> bytes = base::from_base64(etcd_text(object, name));
  if (!bytes) throw unlike_etcd(name, "no base64");
  return std::move(*bytes);
}

// Calls `each` with every object of the list of that name.
template <typename Each>
void for_each_object(const json::object& object, std::string_view name, Each each) {
  const json::value* list = object.if_contains(view(name));
  if (list == nullptr) return;
  if (!list->is_array()) throw unlike_etcd(name, "no list");
  for (const json::value& entry : list->get_array()) {
    if (!entry.is_object()) throw unlike_etcd(name, "no list of objects");
    each(entry.get_object());
  }
}

EtcdKeyValue read_pair(const json::object& object) {
  return {.key = etcd_bytes(object, "key"),
          .value = etcd_bytes(object, "value"),
          .create_revision = etcd_integer(object, "create_revision"),
          .mod_revision = etcd_integer(object, "mod_revision"),
          .lease = etcd_integer(object, "lease")};
}

void set_keys(json::object& request, const EtcdKeys& keys) {
  request["key"] = base::to_base64(keys.first);
  if (!keys.end.empty()) request["range_end"] = base::to_base64(keys.end);
}

}  // namespace

EtcdKeys EtcdKeys::with_prefix(const std::string& prefix) {
  // The end of the range is the prefix with its last byte one higher. 0xff cannot go higher, so the
  // byte before it does. For etcd \0 means no end where it is the end, and the lowest key where it
  // is the first.
  std::string end = prefix;
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) end.pop_back();
  if (end.empty()) return {prefix.empty() ? std::string(1, '\0') : prefix, std::string(1, '\0')};
  end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return {prefix, end};
}

std::string etcd_escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                          (c >= 'a' && c <= 'z') || c == '-' || c == '_' || c == '.';
    if (is_plain) {
      result += c;
    } else {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return result;
}

json::object etcd_range_request(const EtcdKeys& keys, const EtcdRangeOptions& options) {
  json::object request;
  set_keys(request, keys);
  if (options.limit != 0) request["limit"] = std::to_string(options.limit);
  if (options.revision != 0) request["revision"] = std::to_string(options.revision);
  if (options.content == EtcdRangeOptions::Content::keys) request["keys_only"] = true;
  if (options.content == EtcdRangeOptions::Content::count) request["count_only"] = true;
  if (options.order == EtcdRangeOptions::Order::by_creation) {
    request["sort_order"] = "ASCEND";
    request["sort_target"] = "CREATE";
  }
  return request;
}

EtcdTxn& EtcdTxn::compare(const char* target, const char* field, const std::string& key,
                          std::int64_t revision) {
  compare_.push_back(json::object{{"key", base::to_base64(key)},
                                  {"target", target},
                                  {"result", "EQUAL"},
                                  {field, std::to_string(revision)}});
  return *this;
}

EtcdTxn& EtcdTxn::if_modified_at(const std::string& key, std::int64_t revision) {
  return compare("MOD", "mod_revision", key, revision);
}

EtcdTxn& EtcdTxn::if_created_at(const std::string& key, std::int64_t revision) {
  return compare("CREATE", "create_revision", key, revision);
}

EtcdTxn& EtcdTxn::then_put(const std::string& key, std::string_view value, std::int64_t lease) {
  json::object put{{"key", base::to_base64(key)}, {"value", base::to_base64(value)}};
  if (lease != 0) put["lease"] = std::to_string(lease);
  success_.push_back(json::object{{"request_put", std::move(put)}});
  return *this;
}

EtcdTxn& EtcdTxn::then_delete(const EtcdKeys& keys) {
  json::object removal;
  set_keys(removal, keys);
  success_.push_back(json::object{{"request_delete_range", std::move(removal)}});
  return *this;
}

EtcdTxn& EtcdTxn::then_range(const EtcdKeys& keys, const EtcdRangeOptions& options) {
  success_.push_back(json::object{{"request_range", etcd_range_request(keys, options)}});
  return *this;
}

EtcdTxn& EtcdTxn::else_range(const EtcdKeys& keys, const EtcdRangeOptions& options) {
  failure_.push_back(json::object{{"request_range", etcd_range_request(keys, options)}});
  return *this;
}

std::string EtcdTxn::body() const {
  return json::serialize(
      json::object{{"compare", compare_}, {"success", success_}, {"failure", failure_}});
}

std::int64_t etcd_integer(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(view(name));
  if (value == nullptr) return 0;
  if (value->is_int64()) return value->get_int64();
  if (!value->is_string()) throw unlike_etcd(name, "no integer");
  const auto number = base::parse_integer(std::string_view(value->get_string()));
  if (!number) throw unlike_etcd(name, "no integer");
  return *number;
}

bool etcd_flag(const json::object& object, std::string_view name) {
  // Left out is 0, as in all JSON of proto3. There 64-bit integers are texts; a number is read as
  // well.
  const json::value* value = object.if_contains(view(name));
  return value != nullptr && value->is_bool() && value->get_bool();
}

std::string etcd_text(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(view(name));
  if (value == nullptr) return "";
  if (!value->is_string()) throw unlike_etcd(name, "no text");
  return std::string(std::string_view(value->get_string()));
}

const json::object& etcd_object(const json::object& object, std::string_view name) {
  static const json::object kEmpty;
  const json::value* value = object.if_contains(view(name));
  if (value == nullptr) return kEmpty;
  if (!value->is_object()) throw unlike_etcd(name, "no object");
  return value->get_object();
}

std::int64_t etcd_revision(const json::object& reply) {
  // An empty etcd has revision 1 already: 0 is a reply without a header.
  const std::int64_t revision = etcd_integer(etcd_object(reply, "header"), "revision");
  if (revision <= 0) throw unlike_etcd("header.revision", "not there");
  return revision;
}

EtcdRange read_etcd_range(const json::object& reply) {
  EtcdRange range;
  range.count = etcd_integer(reply, "count");
  for_each_object(reply, "kvs",
                  [&](const json::object& pair) { range.list.push_back(read_pair(pair)); });
  return range;
}

EtcdTxnReply read_etcd_txn(const json::object& reply) {
  EtcdTxnReply result;
  result.succeeded = etcd_flag(reply, "succeeded");
  result.revision = etcd_revision(reply);
  for_each_object(reply, "responses", [&](const json::object& response) {
    result.ranges.push_back(read_etcd_range(etcd_object(response, "response_range")));
  });
  return result;
}

const EtcdRange& EtcdTxnReply::range(std::size_t number) const {
  if (number >= ranges.size()) throw unlike_etcd("responses", "too short");
  return ranges[number];
}

std::vector<EtcdEvent> read_etcd_events(const json::object& result) {
  std::vector<EtcdEvent> events;
  for_each_object(result, "events", [&](const json::object& event) {
    // PUT is 0, so its type is left out.
    const bool deleted = etcd_text(event, "type") == "DELETE";
    events.push_back({deleted ? EtcdEvent::Kind::deleted : EtcdEvent::Kind::put,
                      read_pair(etcd_object(event, "kv"))});
  });
  return events;
}

}  // namespace dtrun::rendezvous
