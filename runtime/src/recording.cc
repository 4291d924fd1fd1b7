#include "recording.h"

#include <fmt/core.h>

#include "all_works.h"
#include "dtrun/base/check.h"
#include "dtrun/base/error.h"

namespace dtrun::dist {

using base::Error;
using base::ErrorCode;
using collectives::OpKind;

constinit thread_local Recording* innermost_recording = nullptr;

Recording* find_recording(const ProcessGroup& group) {
  const ProcessGroup& meant = chosen(group);
  Recording* recording = innermost_recording;
  while (recording != nullptr && recording->group() != meant) recording = recording->outer();
  return recording;
}

RecordedCall::Known RecordedCall::known() {
  const std::scoped_lock lock(mutex_);
  return {has_begun_, work_, dropped_};
}

void RecordedCall::wait(base::Deadline deadline) {
  const Known now = known();
  if (now.dropped) std::rethrow_exception(now.dropped);
  if (!now.has_begun)
    throw Error(ErrorCode::kUsage, "wait() for a call in a dist::Coalesce that has not ended", "",
                "call end() first, and wait for what it returns");
  now.work.wait(deadline);
}

bool RecordedCall::is_completed() {
  const Known now = known();
  return now.dropped != nullptr || (now.has_begun && now.work.is_completed());
}

std::exception_ptr RecordedCall::exception() {
  const Known now = known();
  return now.has_begun ? now.work.exception() : now.dropped;
}

int RecordedCall::source_rank() {
  return known().work.source_rank();
}

void RecordedCall::begin(const std::shared_ptr<RecordedCall>& call, const Work& work) {
  {
    const std::scoped_lock lock(call->mutex_);
    call->work_ = work;
    call->has_begun_ = true;
  }
  static_cast<void>(work.then([call](const std::exception_ptr& error) { call->end_with(error); }));
}

void RecordedCall::drop(const std::exception_ptr& error) {
  {
    const std::scoped_lock lock(mutex_);
    if (has_begun_) return;
    dropped_ = error;
  }
  end_with(error);
}

void RecordedCall::end_with(const std::exception_ptr& error) {
  if (const std::function<void()> callbacks = settle(error, nullptr)) callbacks();
}

Recording::Recording(ProcessGroup group, Site site)
    : group_(std::move(group)), site_(site), outer_(innermost_recording) {
  static_cast<void>(group_.size());  // throws where this rank is no member
  if (find_recording(group_) != nullptr)
    throw Error(ErrorCode::kUsage,
                fmt::format("group '{}' has a dist::Coalesce already", group_.name()), "",
                "end() that one first");
  innermost_recording = this;
}

void Recording::require_own_thread() const {
  if (std::this_thread::get_id() == thread_) return;
  throw Error(ErrorCode::kUsage, "end() of " + name() + " on another thread",
              "it lists the calls of the thread that made it", "call end() on that thread");
}

void Recording::close() {
  if (!open_) return;
  DT_CHECK(std::this_thread::get_id() == thread_);
  open_ = false;
  // Scopes may be ended in another order than they were made in.
  Recording** link = &innermost_recording;
  while (*link != this) link = &(*link)->outer_;
  *link = outer_;
}

std::string Recording::name() const {
  return fmt::format("dist::Coalesce at {}:{} in group '{}'", site_.file_name(), site_.line(),
                     group_.name());
}

void Recording::refuse(const char* call) const {
  throw Error(ErrorCode::kUsage, fmt::format("{} in {}", call, name()),
              "such a call cannot wait for the end of the scope",
              "call it before the scope or after its end()");
}

void Recording::require(OpKind kind) const {
  if (kind_ == OpKind::none || kind_ == kind) return;
  const auto name_of = [](OpKind of) {
    return of == OpKind::send ? "isend and irecv" : collectives::op_kind_name(of);
  };
  throw Error(ErrorCode::kUsage, fmt::format("{} in {}", name_of(kind), name()),
              fmt::format("it has calls of another kind: {} x {}", given_.size(), name_of(kind_)),
              "make a scope for each kind");
}

Work Recording::record(OpKind kind, OpOptions options, Start start) {
  require(kind);
  kind_ = kind;
  options.async_op = true;
  calls_.push_back({std::move(options), std::move(start)});
  return Work(given_.emplace_back(std::make_shared<RecordedCall>()));
}

Work Recording::record(const P2POp& message, const MessageOptions& options) {
  require(OpKind::send);
  if (options.timeout)
    throw Error(ErrorCode::kInvalidArgument, "a message with a timeout of its own in " + name(),
                "a batch of messages has the group's timeout", "call dist::set_timeout()");
  kind_ = OpKind::send;
  messages_.push_back(message);
  return Work(given_.emplace_back(std::make_shared<RecordedCall>()));
}

std::vector<Work> Recording::start_each() {
  if (!messages_.empty()) {
    const std::vector<Work> works = batch_isend_irecv(messages_, group_, site_);
    for (std::size_t i = 0; i < works.size(); ++i) RecordedCall::begin(given_[i], works[i]);
    return works;
  }
  std::vector<Work> works;
  for (const Call& call : calls_) {
    works.push_back(call.start(call.options));
    RecordedCall::begin(given_[works.size() - 1], works.back());
  }
  return works;
}

Work Recording::start_all() {
  const Work::State::Clock::time_point started = Work::State::Clock::now();
  try {
    return all_of(start_each(), started);
  } catch (...) {
    drop(std::current_exception());
    throw;
  }
}

void Recording::drop(const std::exception_ptr& error) {
  for (const std::shared_ptr<RecordedCall>& call : given_) call->drop(error);
}

void Recording::abort_group() noexcept {
  if (given_.empty()) return;
  try {
    group_.abort(name() + " was left without end()");
  } catch (...) {
    // Without memory for the text the other ranks run into their deadline.
  }
}

}  // namespace dtrun::dist
