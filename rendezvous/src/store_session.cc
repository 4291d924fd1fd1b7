#include "store_session.h"

#include <fmt/core.h>

#include <utility>

namespace dtrun::rendezvous {

StoreSession::StoreSession(StoreCore& core, const Settings& settings,
                           std::vector<StoreSession*>& released)
    : core_(core), settings_(settings), released_(released), parser_(settings.limits) {}

StoreSession::~StoreSession() {
  core_.cancel(*this);
}

void StoreSession::fail(std::string why) {
  failure_ = std::move(why);
  state_ = State::kFailed;
}

void StoreSession::released() {
  output_.append_integer(kStopWaiting);
  released_.push_back(this);
}

void StoreSession::receive(std::string_view bytes) {
  if (!bytes.empty()) silent_ = false;
  if (state_ == State::kServing) return serve(bytes);
  if (state_ == State::kOpening) return open(bytes);
}

// The first byte tells agents, the first five modern clients. A legacy client that began with these
// five would mean a SET with a key of a gigabyte.
void StoreSession::open(std::string_view bytes) {
  first_bytes_ += bytes;
  if (first_bytes_.empty()) return;
  const unsigned char first = static_cast<unsigned char>(first_bytes_.front());
  if (first >= kFirstAgentByte) {
    state_ = State::kAgent;
    return;
  }
  if (first_bytes_.size() < kStorePreamble.size() && kStorePreamble.starts_with(first_bytes_))
    return;
  std::string all = std::exchange(first_bytes_, {});
  std::string_view rest = all;
  if (rest.starts_with(kStorePreamble)) {
    rest.remove_prefix(kStorePreamble.size());
  } else {
    dialect_ = settings_.legacy;
  }
  parser_.set_dialect(dialect_);
  state_ = State::kServing;
  serve(rest);
}

void StoreSession::serve(std::string_view bytes) {
  while (state_ == State::kServing) {
    if (output_.size() > kMostOutput || has_unserved()) {
      unserved_.append(bytes);
      return;
    }
    switch (parser_.parse(bytes)) {
      case RequestParser::Status::kNeedsMore:
        return;
      case RequestParser::Status::kBad:
        return fail(parser_.failure());
      case RequestParser::Status::kComplete:
        execute(parser_.request());
    }
  }
}

void StoreSession::resume() {
  const std::string bytes = std::exchange(unserved_, {});
  serve(bytes);
}

void StoreSession::execute(Request& request) {
  has_executed_ = true;
  if (request.op == StoreOp::kCancelWait) {
    core_.cancel(*this);
    return output_.append_integer(kWaitCanceled);
  }
  core_.settle(*this);
  // A legacy client has no CANCEL_WAIT: that it asks again means that its wait has timed out, and a
  // late answer would be taken for part of the next one.
  if (is_legacy() && waiting()) core_.cancel(*this);
  switch (request.op) {
    case StoreOp::kValidate:
      if (request.number != kStoreMagic) fail("VALIDATE with another magic");
      return;
    case StoreOp::kSet:
      return core_.set(request.keys[0], std::move(request.values[0]));
    case StoreOp::kCompareSet:
      return output_.append_length_and(core_.compare_set(
          request.keys[0], std::move(request.values[0]), std::move(request.values[1])));
    case StoreOp::kGet:
      return output_.append_length_and(core_.get(request.keys[0]));
    case StoreOp::kAdd: {
      const std::optional<std::int64_t> sum = core_.add(request.keys[0], request.number);
      if (!sum) return fail("ADD to what is no number, or too far");
      return output_.append_integer(*sum);
    }
    case StoreOp::kCheck:
      return output_.append_integer(core_.check(request.keys) ? kReady : kNotReady);
    case StoreOp::kWait:
      if (core_.wait(*this, request.keys)) output_.append_integer(kStopWaiting);
      return;
    case StoreOp::kNumKeys:
      return output_.append_integer(static_cast<std::int64_t>(core_.key_count()));
    case StoreOp::kDeleteKey:
      return output_.append_integer<std::int64_t>(core_.remove(request.keys[0]) ? 1 : 0);
    case StoreOp::kAppend:
      return core_.append(request.keys[0], request.values[0]);
    case StoreOp::kMultiGet:
      for (const std::string& key : request.keys) output_.append_length_and(core_.get(key));
      return;
    case StoreOp::kMultiSet:
      for (std::size_t i = 0; i < request.keys.size(); ++i)
        core_.set(request.keys[i], std::move(request.values[i]));
      return;
    case StoreOp::kPing:
      return output_.append_integer(static_cast<std::uint32_t>(request.number));
    case StoreOp::kListKeys:
      return list_keys();
    case StoreOp::kBarrier:
      return barrier(request);
    case StoreOp::kQueuePush:
    case StoreOp::kQueuePop:
    case StoreOp::kQueueLength:
      return execute_queue_op(request);
    case StoreOp::kCancelWait:
    case StoreOp::kWatchKey:
      return fail(fmt::format("{} is not served", store_op_name(request.op)));
  }
}

void StoreSession::execute_queue_op(Request& request) {
  const std::string& key = request.keys[0];
  if (request.op == StoreOp::kQueuePush) return core_.queue_push(key, std::move(request.values[0]));
  output_.append_integer(static_cast<std::int64_t>(core_.queue_length(key)));
  if (request.op == StoreOp::kQueueLength) return;
  if (const Value value = core_.queue_pop(key)) output_.append_length_and(value);
}

void StoreSession::barrier(const Request& request) {
  switch (core_.barrier(*this, request.keys[0], request.number)) {
    case StoreCore::Barrier::kPassed:
      return output_.append_integer(kStopWaiting);
    case StoreCore::Barrier::kWaiting:
      return;
    case StoreCore::Barrier::kNotANumber:
      return fail("BARRIER on what is no number");
  }
}

void StoreSession::list_keys() {
  const std::vector<std::string> keys = core_.list_keys();
  output_.append_integer(static_cast<std::int64_t>(keys.size()));
  for (const std::string& key : keys) output_.append_length_and(std::string_view(key));
}

}  // namespace dtrun::rendezvous
