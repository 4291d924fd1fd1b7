#include "etcd/etcd_client.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <random>

#include "dtrun/base/backoff.h"
#include "dtrun/base/check.h"
#include "dtrun/base/json.h"

namespace dtrun::rendezvous {
namespace {

namespace json = boost::json;
using base::Deadline;
using base::Error;
using base::ErrorCode;

// gRPC's numbers for why a call failed.
enum GrpcCode {
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kExhausted = 8,
  kUnavailable = 14,
  kUnauthenticated = 16
};

// Another member, or another moment, may answer.
class TryAgain : public Error {
 public:
  using Error::Error;
};

std::minstd_rand& random_numbers() {
  thread_local std::minstd_rand numbers(
      static_cast<unsigned>(::getpid()) ^
      static_cast<unsigned>(Deadline::Clock::now().time_since_epoch().count()));
  return numbers;
}

// The first lines of a text, for a message.
std::string shown(const std::string& text) {
  std::string line = text.substr(0, std::min<std::size_t>(text.find_first_of("\r\n"), 120));
  for (char& c : line)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = '?';
  return line;
}

json::object parse_object(const std::string& text, const std::string& source) {
  json::value value = base::parse_json(text, source);
  if (!value.is_object())
    throw Error(ErrorCode::kProtocol, fmt::format("{} is not as etcd's are", source),
                "it is no object");
  return std::move(value.get_object());
}

}  // namespace

// How one call goes from member to member, and what came of it.
class EtcdClient::Attempts {
 public:
  Attempts(const EtcdClient& client, Deadline deadline)
      : client_(client), deadline_(deadline), results_(client.options_.endpoints.size()) {}

  /// A member that neither answers nor refuses must leave time for the others; where all are slow
  /// they get more and more.
  Deadline for_next() const { return Deadline::after(patience_).earlier(deadline_); }

  void failed(std::size_t member, const Error& error) {
    const bool again = error.code() != ErrorCode::kProtocol;
    // An attempt that the deadline cut short tells less than the one before.
    const bool cut_short = error.code() == ErrorCode::kTimeout && deadline_.expired();
    if (!cut_short || results_[member].cause.empty())
      results_[member] = {error.why().empty() ? error.summary() : error.why(), error.remedy(),
                          again};
    if (++count_ % results_.size() != 0) return;
    // All have been asked.
    if (std::none_of(results_.begin(), results_.end(), [](const Result& r) { return r.again; }))
      throw verdict(ErrorCode::kProtocol);
    if (deadline_.expired()) throw verdict(ErrorCode::kConnection);
    client_.interrupt_.pause(Deadline::after(backoff_.next()).earlier(deadline_));
    patience_ = std::min(patience_ * 2, std::chrono::milliseconds(30000));
  }

 private:
  struct Result {
    std::string cause;
    std::string remedy;
    bool again = true;
  };

  Error verdict(ErrorCode code) const {
    std::string why;
    std::string remedy;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (results_[i].cause.empty()) continue;
      why += fmt::format("{}{}: {}", why.empty() ? "" : "; ",
                         client_.options_.endpoints[i].to_string(), results_[i].cause);
      if (remedy.empty()) remedy = results_[i].remedy;
    }
    const std::string took = base::format_duration(
        std::chrono::round<std::chrono::milliseconds>(Deadline::Clock::now() - start_));
    if (code == ErrorCode::kProtocol)
      return Error(code, fmt::format("no etcd to speak with at {}", client_.members()), why,
                   remedy);
    if (remedy.empty())
      remedy =
          "check the endpoints, whether they speak http or https (protocol=), and that a majority "
          "of etcd's members is up (etcdctl endpoint status)";
    return Error(code, fmt::format("cannot reach etcd at {} for {}", client_.members(), took), why,
                 remedy);
  }

  const EtcdClient& client_;
  const Deadline deadline_;
  const Deadline::Clock::time_point start_ = Deadline::Clock::now();
  std::vector<Result> results_;
  std::size_t count_ = 0;
  base::Backoff backoff_{std::chrono::milliseconds(10), std::chrono::seconds(1)};
  std::chrono::milliseconds patience_{1500};
};

EtcdClient::EtcdClient(const EtcdOptions& options, const Interrupt& interrupt)
    : options_(options), interrupt_(interrupt) {
  DT_CHECK(!options.endpoints.empty());
  // Clients that start together do not all fall upon one member.
  current_ = random_numbers()() % options.endpoints.size();
}

std::string EtcdClient::members() const {
  std::string text;
  for (const base::HostPort& endpoint : options_.endpoints)
    text += (text.empty() ? "" : ", ") + endpoint.to_string();
  return text;
}

void EtcdClient::until_answered(Deadline deadline, const std::function<void(Deadline)>& attempt) {
  Attempts attempts(*this, deadline);
  times_sent_ = 0;
  while (true) {
    try {
      return attempt(attempts.for_next());
    } catch (const TryAgain& error) {
      attempts.failed(current_, error);
    } catch (const Error& error) {
      const bool of_this_member = error.code() == ErrorCode::kConnection ||
                                  error.code() == ErrorCode::kTimeout ||
                                  error.code() == ErrorCode::kProtocol;
      connection_.reset();
      if (!of_this_member) throw;
      attempts.failed(current_, error);
    }
    connection_.reset();
    current_ = (current_ + 1) % options_.endpoints.size();
  }
}

std::unique_ptr<HttpConnection> EtcdClient::connect(Deadline deadline) {
  auto connection = std::make_unique<HttpConnection>(options_.endpoints[current_], options_,
                                                     interrupt_, deadline);
  if (!options_.user.empty() && token_.empty()) log_in(*connection, deadline);
  return connection;
}

void EtcdClient::log_in(HttpConnection& connection, Deadline deadline) {
  const std::string body =
      json::serialize(json::object{{"name", options_.user}, {"password", options_.password}});
  const HttpReply reply = connection.post("/v3/auth/authenticate", "", body, deadline);
  if (reply.status != 200) throw refusal(reply, deadline);
  token_ = etcd_text(parse_object(reply.body, "the answer of etcd"), "token");
}

std::string EtcdClient::post(const std::string& path, const std::string& body, Deadline deadline) {
  if (!connection_) connection_ = connect(deadline);
  ++times_sent_;
  HttpReply reply = connection_->post(path, token_, body, deadline);
  if (reply.status != 200) throw refusal(reply, deadline);
  return std::move(reply.body);
}

json::object EtcdClient::call(const std::string& path, const std::string& body, Deadline deadline) {
  json::object answer;
  until_answered(deadline, [&](Deadline attempt) {
    answer = parse_object(post(path, body, attempt), "the answer of etcd");
  });
  return answer;
}

// What an answer that is no 200 means.
Error EtcdClient::refusal(const HttpReply& reply, Deadline deadline) {
  json::object answer;
  try {
    answer = parse_object(reply.body, "the answer of etcd");
  } catch (const Error&) {
    return no_gateway(reply, deadline);
  }
  if (!answer.contains("error") && !answer.contains("message")) return no_gateway(reply, deadline);
  const std::string message = etcd_text(answer, "message").empty() ? etcd_text(answer, "error")
                                                                   : etcd_text(answer, "message");
  const std::string what = fmt::format("etcd at {} refuses a request", members());
  switch (etcd_integer(answer, "code")) {
    case kNotFound:
      return Error(ErrorCode::kNotFound, what, message);
    case kUnauthenticated:
      // A token is for some minutes; with the next connection comes another.
      if (!std::exchange(token_, "").empty())
        return TryAgain(ErrorCode::kConnection, what, message);
      break;
    case kUnavailable:
    case kDeadlineExceeded:
      return TryAgain(ErrorCode::kConnection, what, message);
    case kExhausted:
      if (message.find("too many requests") != std::string::npos)
        return TryAgain(ErrorCode::kConnection, what, message);
      break;
    default:
      if (message.find("context deadline exceeded") != std::string::npos)
        return TryAgain(ErrorCode::kConnection, what, message);
  }
  std::string remedy;
  if (message.find("too large") != std::string::npos)
    remedy = "etcd takes values of 1.5 MiB at most (its --max-request-bytes)";
  if (message.find("space exceeded") != std::string::npos)
    remedy =
        "etcd's disk quota is full: compact and defragment it (etcdctl), then disarm the alarm";
  if (message.find("user name is empty") != std::string::npos ||
      message.find("permission denied") != std::string::npos ||
      message.find("authentication") != std::string::npos)
    remedy = "check user and password, and that user's roles (etcdctl user get)";
  return Error(ErrorCode::kInvalidArgument, what, message, remedy);
}

Error EtcdClient::no_gateway(const HttpReply& reply, Deadline deadline) {
  const std::string answer = fmt::format("it answers {} '{}'", reply.status, shown(reply.body));
  if (reply.body.find("HTTPS server") != std::string::npos)
    return Error(ErrorCode::kProtocol, "etcd speaks https", answer, "set protocol=https");
  connection_.reset();
  // etcd tells its version to everybody, with its gateway or without.
  std::string version;
  try {
    HttpConnection other(options_.endpoints[current_], options_, interrupt_, deadline);
    version =
        etcd_text(parse_object(other.get("/version", deadline).body, "its version"), "etcdserver");
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kAborted) return error;
  }
  if (version.empty())
    return Error(ErrorCode::kProtocol, "no etcd", "it is no etcd: " + answer,
                 "check the endpoint's host and port");
  if (reply.status != 404)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("etcd at {} refuses a request", members()), answer,
                 "with user and password a client's certificate must have no common name");
  return Error(ErrorCode::kProtocol, "no gateway",
               fmt::format("it is etcd {} without the JSON gateway: {}", version, answer),
               "start etcd with --enable-grpc-gateway=true; it must be 3.4 or newer");
}

std::int64_t EtcdClient::put(const std::string& key, std::string_view value, std::int64_t lease,
                             Deadline deadline) {
  return txn(EtcdTxn().then_put(key, value, lease), deadline).revision;
}

EtcdClient::RangeReply EtcdClient::range(const EtcdKeys& keys, const EtcdRangeOptions& options,
                                         Deadline deadline) {
  const json::object answer =
      call("/v3/kv/range", json::serialize(etcd_range_request(keys, options)), deadline);
  return {etcd_revision(answer), read_etcd_range(answer)};
}

std::int64_t EtcdClient::remove(const EtcdKeys& keys, Deadline deadline) {
  const json::object answer =
      call("/v3/kv/deleterange", json::serialize(etcd_range_request(keys)), deadline);
  return etcd_integer(answer, "deleted");
}

EtcdTxnReply EtcdClient::txn(const EtcdTxn& txn, Deadline deadline) {
  return read_etcd_txn(call("/v3/kv/txn", txn.body(), deadline));
}

EtcdLease EtcdClient::grant_lease(std::chrono::seconds ttl, Deadline deadline) {
  const json::object answer =
      call("/v3/lease/grant", json::serialize(json::object{{"TTL", std::to_string(ttl.count())}}),
           deadline);
  const EtcdLease lease{etcd_integer(answer, "ID"),
                        std::chrono::seconds(etcd_integer(answer, "TTL"))};
  if (lease.id == 0 || lease.ttl.count() <= 0)
    throw Error(ErrorCode::kProtocol, fmt::format("etcd at {} grants no lease", members()),
                "its answer has neither a lease nor a reason");
  return lease;
}

std::chrono::seconds EtcdClient::keep_lease_alive(std::int64_t id, Deadline deadline) {
  const json::object answer = call(
      "/v3/lease/keepalive", json::serialize(json::object{{"ID", std::to_string(id)}}), deadline);
  return std::chrono::seconds(etcd_integer(etcd_object(answer, "result"), "TTL"));
}

std::chrono::seconds EtcdClient::lease_time_to_live(std::int64_t id, Deadline deadline) {
  const json::object answer = call(
      "/v3/lease/timetolive", json::serialize(json::object{{"ID", std::to_string(id)}}), deadline);
  return std::max(std::chrono::seconds(etcd_integer(answer, "TTL")), std::chrono::seconds(0));
}

void EtcdClient::revoke_lease(std::int64_t id, Deadline deadline) {
  try {
    call("/v3/lease/revoke", json::serialize(json::object{{"ID", std::to_string(id)}}), deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;  // it has run out
  }
}

EtcdClient::Stream EtcdClient::open_stream(const std::string& path, const std::string& body,
                                           Deadline deadline) {
  Stream stream;
  until_answered(deadline, [&](Deadline attempt) {
    stream.connection = connect(attempt);
    const auto refused = stream.connection->open_stream(path, token_, body, attempt);
    if (refused) throw refusal(*refused, attempt);
    stream.member = current_;
  });
  return stream;
}

void EtcdClient::probe(Deadline deadline) {
  // Not serializable: a member without a majority cannot answer.
  range(EtcdKeys::one(std::string(1, '\0')), {.content = EtcdRangeOptions::Content::count},
        deadline);
}

}  // namespace dtrun::rendezvous
