// The requests to etcd's JSON gateway and its answers: keys and values in base64, 64-bit integers
// as strings; members that are zero, false or empty are left out. Values; pure.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::rendezvous {

/// The keys that a request is about: one, or a range.
struct EtcdKeys {
  std::string first;
  std::string end;  ///< the range's end, not in it; empty: one key; a zero byte: there is none

  static EtcdKeys one(std::string key) { return {std::move(key), ""}; }
  static EtcdKeys with_prefix(const std::string& prefix);
  bool has(std::string_view key) const {
    if (end.empty()) return key == first;
    const bool is_endless = end == std::string_view("\0", 1);
    return key >= first && (is_endless || key < end);
  }
};

/// A text as a part of a key: what is no letter, digit, '-', '_' or '.' becomes %XX.
std::string etcd_escape(std::string_view text);

struct EtcdKeyValue {
  std::string key;
  std::string value;
  std::int64_t create_revision = 0;
  std::int64_t mod_revision = 0;
  std::int64_t lease = 0;
};

struct EtcdRange {
  std::int64_t count = 0;  ///< of the keys in the range, more than are listed where it was limited
  std::vector<EtcdKeyValue> list;
};

struct EtcdRangeOptions {
  std::int64_t limit = 0;     ///< 0: all
  std::int64_t revision = 0;  ///< as it was then; 0: now
  enum class Content { values, keys, count } content = Content::values;
  enum class Order { by_key, by_creation } order = Order::by_key;
};

/// The body of a range request.
boost::json::object etcd_range_request(const EtcdKeys& keys, const EtcdRangeOptions& options = {});

/// A transaction: if all conditions hold the one list of operations, else the other.
class EtcdTxn {
 public:
  /// Revision 0: there is no such key.
  EtcdTxn& if_modified_at(const std::string& key, std::int64_t revision);
  EtcdTxn& if_created_at(const std::string& key, std::int64_t revision);
  EtcdTxn& then_put(const std::string& key, std::string_view value, std::int64_t lease = 0);
  EtcdTxn& then_delete(const EtcdKeys& keys);
  EtcdTxn& then_range(const EtcdKeys& keys, const EtcdRangeOptions& options = {});
  EtcdTxn& else_range(const EtcdKeys& keys, const EtcdRangeOptions& options = {});
  std::string body() const;

 private:
  EtcdTxn& compare(const char* target, const char* field, const std::string& key,
                   std::int64_t revision);
  boost::json::array compare_;
  boost::json::array success_;
  boost::json::array failure_;
};

struct EtcdTxnReply {
  bool succeeded = false;
  std::int64_t revision = 0;
  /// One for each operation that was carried out; empty for those that are no range.
  std::vector<EtcdRange> ranges;

  /// @throws Error kProtocol where the reply is shorter
  const EtcdRange& range(std::size_t number) const;
};

struct EtcdEvent {
  enum class Kind { put, deleted } kind = Kind::put;
  EtcdKeyValue pair;  ///< of a deleted one only key and mod_revision
};

// Readers of replies. @throws Error kProtocol where a reply is not as etcd's are.
std::int64_t etcd_integer(const boost::json::object& object, std::string_view name);
bool etcd_flag(const boost::json::object& object, std::string_view name);
std::string etcd_text(const boost::json::object& object, std::string_view name);
/// An empty object where it is left out.
const boost::json::object& etcd_object(const boost::json::object& object, std::string_view name);
std::int64_t etcd_revision(const boost::json::object& reply);
EtcdRange read_etcd_range(const boost::json::object& reply);
EtcdTxnReply read_etcd_txn(const boost::json::object& reply);
std::vector<EtcdEvent> read_etcd_events(const boost::json::object& result);

}  // namespace dtrun::rendezvous
