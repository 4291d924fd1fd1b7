#include "etcd/etcd_campaign.h"

#include <fmt/core.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <boost/json/serialize.hpp>

#include "dtrun/base/env.h"
#include "dtrun/base/json.h"
#include "dtrun/base/log.h"

namespace dtrun::rendezvous {
namespace {

namespace json = boost::json;
using base::Deadline;
using base::Error;
using base::ErrorCode;
using base::log::Component;
using std::chrono::milliseconds;

// nullopt where somebody else has written something else there.
std::optional<ElectedHead> read_head(const EtcdKeyValue& pair) {
  try {
    const json::value value = base::parse_json(pair.value, pair.key);
    if (!value.is_object()) return std::nullopt;
    const std::int64_t port = etcd_integer(value.get_object(), "port");
    ElectedHead head;
    head.address.host = etcd_text(value.get_object(), "host");
    head.node = etcd_text(value.get_object(), "node");
    head.epoch = pair.create_revision;
    if (head.address.host.empty() || port < 1 || port > 65535) return std::nullopt;
    head.address.port = static_cast<std::uint16_t>(port);
    return head;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::int64_t read_round(const EtcdRange& range) {
  return range.list.empty() ? 0 : base::parse_integer(range.list[0].value).value_or(0);
}

}  // namespace

EtcdCampaign::EtcdCampaign(EtcdElectionSettings settings, EtcdElectionCallbacks callbacks,
                           std::function<void(base::EventLoop::Callback)> post)
    : settings_(std::move(settings)),
      callbacks_(std::move(callbacks)),
      post_(std::move(post)),
      client_(settings_.etcd, interrupt_),
      ordered_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!ordered_) throw base::system_error("make an event descriptor");
}

std::string EtcdCampaign::key(const std::string& name) const {
  return fmt::format("{}/{}/{}", settings_.prefix, etcd_escape(settings_.run_id), name);
}

std::string EtcdCampaign::address_text() const {
  return json::serialize(json::object{{"host", settings_.address.host},
                                      {"port", settings_.address.port.value_or(0)},
                                      {"node", settings_.node}});
}

// A call of the leader's must have ended when it must step down.
Deadline EtcdCampaign::call_deadline() const {
  const auto third = milliseconds(settings_.ttl) / 3;
  if (leads_in_ != 0) return Deadline::after(third).earlier(Deadline::at(safe_until_));
  return Deadline::after(std::max<milliseconds>(third, std::chrono::seconds(5)));
}

void EtcdCampaign::run() {
  while (!closed_) {
    try {
      look_at_clock();
      session();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kAborted) break;
      if (error.code() == ErrorCode::kNotFound) {
        lease_.id = 0;  // ran out between two calls; the next session finds out what that means
        continue;
      }
      tell_trouble(error);
      if (error.code() != ErrorCode::kConnection) break;
    }
  }
  resign();
}

// Until what is known must be read anew, or something fails.
void EtcdCampaign::session() {
  renew_lease();
  read_all();
  EtcdWatch watch(client_, {EtcdKeys::one(key("leader")), EtcdKeys::one(key("closed"))},
                  known_at_ + 1);
  bool is_known = true;
  while (is_known && !closed_) {
    if (look_at_clock() == Clockwork::lapsed) return;
    carry_out_orders();
    if (!has_leader_ && !closed_) campaign();
    if (closed_) return;
    const std::int64_t lease = lease_.id;
    if (Clock::now() >= keep_at_) renew_lease();
    if (lease_.id != lease) return;
    const EtcdWatch::News news = watch.next(Deadline::at(keep_at_), ordered_.get());
    is_known = !news.forgotten;
    for (const EtcdEvent& event : news.events) is_known = take_event(event) && is_known;
  }
}

// Keeps the lease alive, or gets another where there is none any more.
void EtcdCampaign::renew_lease() {
  if (lease_.id != 0) {
    const auto sent = Clock::now();
    const std::chrono::seconds ttl = client_.keep_lease_alive(lease_.id, call_deadline());
    if (ttl.count() > 0) return keep_lease(sent, ttl);
    lease_.id = 0;
    step_down(SteppedDown::Cause::replaced, "its lease has run out at etcd");
  }
  const auto sent = Clock::now();
  lease_ = client_.grant_lease(settings_.ttl, call_deadline());
  // For those who look: etcdctl get --prefix.
  client_.put(key("members/" + etcd_escape(settings_.node)), address_text(), lease_.id,
              call_deadline());
  keep_lease(sent, lease_.ttl);
}

/// @param sent when etcd was asked: its time cannot have begun earlier
void EtcdCampaign::keep_lease(Clock::time_point sent, std::chrono::seconds ttl) {
  const milliseconds whole(ttl);
  keep_at_ = sent + whole / 3;
  safe_until_ = sent + whole - std::max(whole / 10, milliseconds(100));
  if (leads_in_ != 0) held_until_ = safe_until_.time_since_epoch().count();
  if (in_trouble_)
    base::log::info(Component::kLauncher, "etcd at {} answers again", client_.members());
  in_trouble_ = false;
}

void EtcdCampaign::read_all() {
  EtcdTxn txn;
  for (const char* name : {"closed", "leader", "last_round"})
    txn.then_range(EtcdKeys::one(key(name)));
  const EtcdTxnReply reply = client_.txn(txn, call_deadline());
  known_at_ = reply.revision;
  if (!reply.range(0).list.empty()) return tell_closed(reply.range(0).list[0].value);
  has_leader_ = !reply.range(1).list.empty();
  const EtcdRange& round = reply.range(2);
  round_at_ = round.list.empty() ? 0 : round.list[0].mod_revision;
  if (has_leader_) return take_leader(reply.ranges[1].list[0], read_round(round));
  step_down(SteppedDown::Cause::replaced, "its key is gone from etcd");
}

void EtcdCampaign::campaign() {
  const EtcdKeys leader = EtcdKeys::one(key("leader"));
  const EtcdKeys round = EtcdKeys::one(key("last_round"));
  EtcdTxn txn;
  txn.if_created_at(leader.first, 0)
      .if_created_at(key("closed"), 0)
      .then_put(leader.first, address_text(), lease_.id)
      .then_range(round)
      .else_range(EtcdKeys::one(key("closed")))
      .else_range(leader)
      .else_range(round);
  const EtcdTxnReply reply = client_.txn(txn, call_deadline());
  known_at_ = reply.revision;
  if (!reply.succeeded && !reply.range(0).list.empty())
    return tell_closed(reply.range(0).list[0].value);
  const EtcdRange& last_round = reply.range(reply.succeeded ? 1 : 2);
  round_at_ = last_round.list.empty() ? 0 : last_round.list[0].mod_revision;
  has_leader_ = reply.succeeded || !reply.range(1).list.empty();
  if (!has_leader_) return;  // and gone again
  EtcdKeyValue mine{.key = leader.first,
                    .value = address_text(),
                    .create_revision = reply.revision,
                    .lease = lease_.id};
  take_leader(reply.succeeded ? mine : reply.ranges[1].list[0], read_round(last_round));
}

void EtcdCampaign::take_leader(const EtcdKeyValue& pair, std::int64_t last_round) {
  std::optional<ElectedHead> head = read_head(pair);
  if (!head)
    throw Error(ErrorCode::kProtocol,
                fmt::format("etcd's key {} holds no address of a head", pair.key),
                pair.value.substr(0, 100), "another program may use that key: use another rdzv_id");
  has_leader_ = true;
  if (is_mine(pair)) {
    head->who = ElectedHead::Who::self;
    head->last_round = last_round;
    leads_in_ = head->epoch;
    held_until_ = safe_until_.time_since_epoch().count();
    held_epoch_ = leads_in_;
  } else {
    step_down(SteppedDown::Cause::replaced, fmt::format("{} leads now", head->node));
  }
  if (told_ == head->epoch) return;
  told_ = head->epoch;
  tell_leader(*head);
}

// False where more must be known than the event tells.
bool EtcdCampaign::take_event(const EtcdEvent& event) {
  // The stream lags behind what was read on the other connection.
  if (event.pair.mod_revision <= known_at_) return true;
  if (event.pair.key == key("closed")) {
    if (event.kind == EtcdEvent::Kind::put) tell_closed(event.pair.value);
  } else if (event.kind == EtcdEvent::Kind::deleted) {
    has_leader_ = false;
    step_down(SteppedDown::Cause::replaced, "its key is gone from etcd");
  } else if (is_mine(event.pair)) {
    return false;  // a copy of our request, carried out late: the last round is to be read, too
  } else {
    take_leader(event.pair, 0);
  }
  return true;
}

EtcdCampaign::Clockwork EtcdCampaign::look_at_clock() {
  if (leads_in_ == 0 || Clock::now() < safe_until_) return Clockwork::in_time;
  step_down(SteppedDown::Cause::lapsed,
            fmt::format("etcd at {} has not confirmed its lease of {} s in time", client_.members(),
                        lease_.ttl.count()));
  return Clockwork::lapsed;
}

void EtcdCampaign::step_down(SteppedDown::Cause cause, const std::string& why) {
  if (leads_in_ == 0) return;
  held_epoch_ = 0;
  const SteppedDown down{cause, leads_in_, why};
  leads_in_ = 0;
  told_ = 0;
  base::log::info(Component::kLauncher, "{} leads run '{}' no more: {}", settings_.node,
                  settings_.run_id, why);
  post_([down, callback = callbacks_.on_stepped_down] { callback(down); });
}

void EtcdCampaign::tell_leader(const ElectedHead& head) {
  base::log::info(Component::kLauncher, "{} {} leads run '{}' at {}, epoch {}: {}",
                  head.who == ElectedHead::Who::self ? "this agent," : "the agent", head.node,
                  settings_.run_id, head.address.to_string(), head.epoch,
                  head.who == ElectedHead::Who::self
                      ? "it was the first to ask etcd when nobody led"
                      : "it holds etcd's key " + key("leader"));
  post_([head, callback = callbacks_.on_leader] { callback(head); });
}

void EtcdCampaign::tell_closed(const std::string& verdict) {
  if (closed_) return;
  closed_ = true;
  held_epoch_ = 0;
  post_([verdict, callback = callbacks_.on_closed] { callback(verdict); });
}

void EtcdCampaign::tell_trouble(const Error& error) {
  if (in_trouble_ && error.code() == ErrorCode::kConnection) return;
  in_trouble_ = true;
  post_([error, callback = callbacks_.on_trouble] { callback(error); });
}

void EtcdCampaign::give(Order order) {
  const std::lock_guard lock(mutex_);
  orders_.push_back(std::move(order));
  ::eventfd_write(ordered_.get(), 1);
}

// An order that fails for the network stays the first.
void EtcdCampaign::carry_out_orders() {
  eventfd_t count = 0;
  ::eventfd_read(ordered_.get(), &count);
  while (true) {
    std::optional<Order> order;
    {
      const std::lock_guard lock(mutex_);
      if (orders_.empty()) return;
      order = orders_.front();
    }
    const bool done = leads_in_ != 0 && carry_out(*order);
    if (done) post_(order->done);
    if (done && order->kind == Order::Kind::close) tell_closed(order->verdict);
    const std::lock_guard lock(mutex_);
    orders_.erase(orders_.begin());
  }
}

bool EtcdCampaign::carry_out(const Order& order) {
  const bool done =
      order.kind == Order::Kind::close ? close(order.verdict) : record_round(order.round);
  if (!done) step_down(SteppedDown::Cause::replaced, "another leads in etcd");
  return done;
}

// Only while this agent's key stands, and only over what it has seen: a copy of an older request
// that is carried out late changes nothing.
bool EtcdCampaign::record_round(std::int64_t round) {
  const EtcdKeys leader = EtcdKeys::one(key("leader"));
  const EtcdKeys place = EtcdKeys::one(key("last_round"));
  const std::string text = std::to_string(round);
  while (true) {
    EtcdTxn txn;
    txn.if_created_at(leader.first, leads_in_)
        .if_modified_at(place.first, round_at_)
        .then_put(place.first, text)
        .else_range(leader)
        .else_range(place);
    const EtcdTxnReply reply = client_.txn(txn, call_deadline());
    if (reply.succeeded) {
      round_at_ = reply.revision;
      return true;
    }
    const EtcdRange& now = reply.range(0);
    if (now.list.empty() || now.list[0].create_revision != leads_in_) return false;
    const EtcdRange& last = reply.range(1);
    round_at_ = last.list.empty() ? 0 : last.list[0].mod_revision;
    if (!last.list.empty() && last.list[0].value == text) return true;
  }
}

bool EtcdCampaign::close(const std::string& verdict) {
  const EtcdLease memory = client_.grant_lease(settings_.closed_ttl, call_deadline());
  EtcdTxn txn;
  txn.if_created_at(key("leader"), leads_in_)
      .then_put(key("closed"), verdict, memory.id)
      .then_delete(EtcdKeys::one(key("last_round")))
      .else_range(EtcdKeys::one(key("closed")));
  const EtcdTxnReply reply = client_.txn(txn, call_deadline());
  if (reply.succeeded) return true;
  const EtcdRange& written = reply.range(0);
  if (written.list.empty()) return false;
  if (written.list[0].value == verdict) return true;  // by a copy of this request
  step_down(SteppedDown::Cause::replaced, "a head before it has judged");
  tell_closed(written.list[0].value);
  return false;
}

// Revokes the lease, so that no agent waits for it to run out. If etcd does not answer, they must
// wait.
void EtcdCampaign::resign() {
  held_epoch_ = 0;
  if (lease_.id == 0 || in_trouble_) return;
  constexpr auto kPatience = milliseconds(500);
  try {
    const Interrupt interrupt;
    EtcdClient(settings_.etcd, interrupt).revoke_lease(lease_.id, Deadline::after(kPatience));
  } catch (const Error&) {
  }
}

std::optional<std::int64_t> EtcdCampaign::held_epoch() const {
  const std::int64_t epoch = held_epoch_;
  if (epoch == 0 || Clock::now().time_since_epoch().count() >= held_until_) return std::nullopt;
  return epoch;
}

}  // namespace dtrun::rendezvous
