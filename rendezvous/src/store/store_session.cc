#include "store/store_session.h"

#include <fmt/core.h>

#include <utility>

namespace dtrun::rendezvous {
namespace {

// A value from here on is not copied out of a request that is kept anyhow.
constexpr std::size_t kAdoptedFrom = 64 << 10;

}  // namespace

StoreSession::StoreSession(StoreService& service)
    : service_(service),
      parser_(service.settings.limits, service.core.memory(), service.request),
      output_(service.core.memory()),
      held_charge_(service.core.memory()) {}

StoreSession::~StoreSession() {
  service_.core.cancel(*this);
}

void StoreSession::fail(std::string why) {
  failure_ = std::move(why);
  state_ = State::kFailed;
}

void StoreSession::released() {
  output_.append_integer(kStopWaiting);
  service_.released.push_back(this);
}

void StoreSession::receive(std::string_view bytes) {
  if (bytes.empty()) return;
  silent_ = false;
  if (state_ == State::kOpening) {
    open(bytes);
  } else if (state_ == State::kServing) {
    serve(bytes);
  } else if (state_ == State::kAgent) {
    held_ += bytes;
  }
}

// The first byte tells agents, the first five modern clients. A legacy client that began with these
// five would mean a SET with a key of a gigabyte.
void StoreSession::open(std::string_view bytes) {
  const unsigned char first =
      static_cast<unsigned char>(held_.empty() ? bytes.front() : held_.front());
  if (first >= kFirstAgentByte) {
    held_ = bytes;
    state_ = State::kAgent;
    return;
  }
  const std::string all = std::exchange(held_, {}).append(bytes);
  std::string_view rest = all;
  if (rest.size() < kStorePreamble.size() && kStorePreamble.starts_with(rest)) {
    held_ = rest;
    return;
  }
  if (rest.starts_with(kStorePreamble)) {
    rest.remove_prefix(kStorePreamble.size());
  } else if (service_.settings.legacy) {
    dialect_ = *service_.settings.legacy;
  } else {
    return fail("it did not begin with VALIDATE, and the legacy dialect is not served");
  }
  parser_.set_dialect(dialect_);
  state_ = State::kServing;
  serve(rest);
}

void StoreSession::serve(std::string_view bytes) {
  while (state_ == State::kServing) {
    if (stalled()) return hold(bytes);
    switch (parse(bytes)) {
      case RequestParser::Status::kNeedsMore:
        return;
      case RequestParser::Status::kBad:
        return fail(parser_.failure());
      case RequestParser::Status::kComplete:
        execute(parser_.request());
        parser_.forget_request();
    }
  }
}

RequestParser::Status StoreSession::parse(std::string_view& bytes) {
  try {
    return parser_.parse(bytes);
  } catch (const StoreFull&) {
    fail_for_memory("a request that has come in part");
    return RequestParser::Status::kNeedsMore;
  }
}

void StoreSession::hold(std::string_view bytes) {
  held_.append(bytes);
  held_charge_.set(held_.capacity());
}

void StoreSession::resume() {
  const std::string bytes = std::exchange(held_, {});
  held_charge_.set(0);
  serve(bytes);
}

// Whoever's buffers push the store over its limit goes; the others stay.
void StoreSession::limit_memory() {
  if (!service_.core.memory().is_exceeded() || state_ == State::kFailed) return;
  if (held_.size() + output_.own_bytes() > 0)
    fail_for_memory("what it has not read of its answers");
}

void StoreSession::fail_for_memory(std::string_view what) {
  const StoreMemory& memory = service_.core.memory();
  fail(fmt::format("{}, and the store has {} of its {} bytes in use", what, memory.used(),
                   memory.most()));
}

void StoreSession::execute(const Request& request) {
  StoreCore& core = service_.core;
  has_executed_ = true;
  if (request.op == StoreOp::kCancelWait) {
    core.cancel(*this);
    return output_.append_integer(kWaitCanceled);
  }
  core.settle(*this);
  // A legacy client has no CANCEL_WAIT: that it asks again means that its wait has timed out, and a
  // late answer would be taken for part of the next one.
  if (is_legacy() && waiting()) core.cancel(*this);
  try {
    answer(request);
  } catch (const StoreFull&) {
    fail_for_memory(fmt::format("{} of {} bytes", store_op_name(request.op), request.bytes));
  }
}

// Of requests that end with their one value, if it is a long one.
std::optional<KeptPart> StoreSession::kept_value(const Request& request) const {
  StoreBytes* const kept = parser_.kept();
  const std::string_view value = request.values[0];
  if (kept == nullptr || value.size() < kAdoptedFrom) return std::nullopt;
  return KeptPart{*kept, value};
}

void StoreSession::answer(const Request& request) {
  StoreCore& core = service_.core;
  switch (request.op) {
    case StoreOp::kValidate:
      if (request.number != kStoreMagic) fail("VALIDATE with another magic");
      return;
    case StoreOp::kSet:
      if (const auto kept = kept_value(request)) return core.set(request.keys[0], *kept);
      return core.set(request.keys[0], request.values[0]);
    case StoreOp::kCompareSet:
      return output_.append_length_and(
          core.compare_set(request.keys[0], request.values[0], request.values[1]));
    case StoreOp::kGet:
      return output_.append_length_and(core.get(request.keys[0]));
    case StoreOp::kAdd: {
      const std::optional<std::int64_t> sum = core.add(request.keys[0], request.number);
      if (!sum) return fail("ADD to what is no number, or too far");
      return output_.append_integer(*sum);
    }
    case StoreOp::kCheck:
      return output_.append_integer(core.check(request.keys) ? kReady : kNotReady);
    case StoreOp::kWait:
      if (core.wait(*this, request.keys)) output_.append_integer(kStopWaiting);
      return;
    case StoreOp::kNumKeys:
      return output_.append_integer(static_cast<std::int64_t>(core.key_count()));
    case StoreOp::kDeleteKey:
      return output_.append_integer<std::int64_t>(core.remove(request.keys[0]) ? 1 : 0);
    case StoreOp::kAppend:
      return core.append(request.keys[0], request.values[0]);
    case StoreOp::kMultiGet:
      return multi_get(request.keys);
    case StoreOp::kMultiSet:
      return core.multi_set(request.keys, request.values);
    case StoreOp::kPing:
      return output_.append_integer(static_cast<std::uint32_t>(request.number));
    case StoreOp::kListKeys:
      return list_keys();
    case StoreOp::kBarrier:
      return answer_barrier(request);
    case StoreOp::kQueuePush:
    case StoreOp::kQueuePop:
    case StoreOp::kQueueLength:
      return answer_queue_op(request);
    case StoreOp::kCancelWait:
    case StoreOp::kWatchKey:
      return fail(fmt::format("{} is not served", store_op_name(request.op)));
  }
}

// A million times the same key is a short request and a long answer.
void StoreSession::multi_get(std::span<const std::string_view> keys) {
  for (const std::string_view key : keys) {
    output_.append_length_and(service_.core.get(key));
    if (service_.core.memory().is_exceeded()) return limit_memory();
  }
}

void StoreSession::answer_queue_op(const Request& request) {
  StoreCore& core = service_.core;
  const std::string_view key = request.keys[0];
  if (request.op == StoreOp::kQueuePush) {
    if (const auto kept = kept_value(request)) return core.queue_push(key, *kept);
    return core.queue_push(key, request.values[0]);
  }
  output_.append_integer(static_cast<std::int64_t>(core.queue_length(key)));
  if (request.op == StoreOp::kQueueLength) return;
  if (const Value value = core.queue_pop(key)) output_.append_length_and(value);
}

void StoreSession::answer_barrier(const Request& request) {
  switch (service_.core.barrier(*this, request.keys[0], request.number)) {
    case StoreCore::Barrier::kPassed:
      return output_.append_integer(kStopWaiting);
    case StoreCore::Barrier::kWaiting:
      return;
    case StoreCore::Barrier::kNotANumber:
      return fail("BARRIER on what is no number");
  }
}

void StoreSession::list_keys() {
  const StoreCore& core = service_.core;
  output_.append_integer(static_cast<std::int64_t>(core.key_count()));
  core.each_key([&](std::string_view key) {
    if (!core.memory().is_exceeded()) output_.append_length_and(key);
  });
  limit_memory();
}

}  // namespace dtrun::rendezvous
