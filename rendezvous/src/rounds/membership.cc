#include "dtrun/rendezvous/membership.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "dtrun/base/background_call.h"
#include "dtrun/base/backoff.h"
#include "dtrun/base/check.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/round_clock.h"
#include "rounds/agent_dialer.h"
#include "rounds/agent_socket.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::UniqueFd;
using rounds::Moment;

constexpr std::size_t kHeadReadBytes = 4 << 10;
constexpr Deadline::Duration kDialLimit = std::chrono::seconds(5);
constexpr Deadline::Duration kFirstPause = std::chrono::milliseconds(10);
constexpr Deadline::Duration kLongestPause = std::chrono::seconds(1);
// A head without a descriptor left closes a connection without a word, and so does a program that
// is no head; this long it is taken for the former.
constexpr Moment kSilentCloses = std::chrono::seconds(5);
constexpr Deadline::Duration kFarewell = std::chrono::seconds(5);

}  // namespace

struct Membership::Impl {
  Impl(base::EventLoop& event_loop, rounds::MemberSettings settings, Proof own_proof,
       MembershipCallbacks calls)
      : loop(event_loop),
        proof(std::move(own_proof)),
        callbacks(std::move(calls)),
        retry(loop),
        handshake_timer(loop),
        tick(loop),
        farewell(loop) {
    state.settings = std::move(settings);
  }

  // --- the state machine
  void begin(HeadPlace at) {
    place = std::move(at);
    const std::weak_ptr<bool> alive = lives;
    busy = true;
    for (const auto& action : rounds::begin(state, rounds::read_clock())) {
      std::visit([&](const auto& what) { carry_out(what); }, action);
      if (alive.expired()) return;
    }
    busy = false;
    work_off();
  }

  // A callback may report its result at once; the result is queued until this step is over.
  void deliver(rounds::MemberEvent event) {
    events.push_back(std::move(event));
    if (!busy) work_off();
  }

  void work_off() {
    const std::weak_ptr<bool> alive = lives;
    busy = true;
    while (!events.empty()) {
      const rounds::MemberEvent event = std::move(events.front());
      events.pop_front();
      for (const auto& action : rounds::step(state, event, rounds::read_clock())) {
        std::visit([&](const auto& what) { carry_out(what); }, action);
        if (alive.expired()) return;
      }
    }
    busy = false;
    arm_tick();
    tell_lease();
  }

  void arm_tick() {
    const Moment due = rounds::member_deadline(state);
    if (std::exchange(armed, due) == due) return;
    if (due == Moment::max()) return tick.cancel();
    tick.start(rounds::deadline_at(due), [this] {
      armed.reset();
      deliver(rounds::MemberTick{});
    });
  }

  // --- actions
  void carry_out(const rounds::Connect&) {
    if (place.own) {
      connect_own();
    } else {
      retry.start(Deadline::after(next_pause()), [this] { dial(); });
    }
  }

  void carry_out(const rounds::Say& action) {
    if (!open) return;
    note_acknowledged();
    said = rounds::read_clock();
    session.say(action.message);
    flush();
  }

  void carry_out(const rounds::Disconnect&) { part(); }
  void carry_out(const rounds::OpenStore& action) { callbacks.on_open_store(action); }
  void carry_out(const rounds::StartWorkers& action) { callbacks.on_start_workers(action); }
  void carry_out(const rounds::StopWorkers& action) { callbacks.on_stop_workers(action); }
  void carry_out(const rounds::MemberNote& action) { callbacks.on_note(action); }
  void carry_out(const rounds::Finish& action) {
    stop_dialing();
    tick.cancel();
    const auto on_finish = callbacks.on_finish;
    on_finish(action);
  }

  // --- the lease
  // The kernel's acknowledgement is enough. An echo by the head would prove as much, but a stopped
  // head sends none, and must not lose its members: messages that wait in its machine count when it
  // goes on.
  void note_acknowledged() {
    if (open && state.accepted && !writing && is_acknowledged(socket.get())) acknowledged = said;
  }

  Moment lease() {
    note_acknowledged();
    if (!rounds::others_may_go_on(state)) return Moment::max();
    return acknowledged + state.silence_window - state.silence_window / 10;
  }

  void tell_lease() {
    if (!callbacks.on_lease) return;
    const Moment until = lease();
    if (std::exchange(told_lease, until) != until) callbacks.on_lease(until);
  }

  // --- connecting
  void connect_own() {
    attach(std::move(place.own), AgentSession());
    open = true;
    deliver(rounds::Connected{});
  }

  /// The first attempt is made at once.
  Deadline::Duration next_pause() {
    if (!std::exchange(has_tried, true)) return {};
    return backoff.next();
  }
  void forget_attempts() {
    has_tried = false;
    backoff.reset();
  }

  void dial() {
    dialer = std::make_unique<AgentDialer>(loop, place.host, place.port, kDialLimit,
                                           [this](UniqueFd fd, const std::string& why) {
                                             dialer.reset();
                                             if (!fd) return deliver(rounds::Unreachable{why});
                                             shake_hands(std::move(fd));
                                           });
  }

  void shake_hands(UniqueFd fd) {
    attach(std::move(fd), AgentSession(AgentHandshake(AgentHandshake::Role::kMember, "agents",
                                                      proof, fresh_nonce())));
    flush();
    const Deadline::Duration limit = state.settings.read_timeout;
    handshake_timer.start(Deadline::after(limit), [this, limit] {
      const std::string time = base::format_duration(limit);
      if (realm_call)
        return be_refused(
            fmt::format("munge has not opened the head's credential on this node in "
                        "{} (--rdzv_conf token=munge): is munged stopped here?",
                        time));
      not_a_head(fmt::format("it did not answer in {}", time));
    });
  }

  void attach(UniqueFd fd, AgentSession with) {
    DT_CHECK(!socket);
    prepare_agent_socket(fd.get());
    session = std::move(with);
    socket = std::move(fd);
    writing = false;
    watch = std::make_unique<base::FdWatch>(loop, socket.get());
    watch->on_readable([this] { read(); });
  }

  void drop() {
    handshake_timer.cancel();
    realm_call.reset();
    watch.reset();
    socket.reset();
    open = false;
  }

  // Sends the rest; the head ends the connection when it has read it.
  void part() {
    if (!socket) return;
    flush();
    ::shutdown(socket.get(), SHUT_WR);
    leaving_watch = std::move(watch);
    if (writing) leaving_watch->on_writable({});
    leaving = std::move(socket);
    leaving_watch->on_readable([this] {
      char rest[4096];
      const ssize_t n = ::recv(leaving.get(), rest, sizeof rest, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) end_leaving();
    });
    farewell.start(Deadline::after(kFarewell), [this] { end_leaving(); });
    drop();
  }

  void end_leaving() {
    leaving_watch.reset();
    leaving.reset();
    farewell.cancel();
  }

  void stop_dialing() {
    retry.cancel();
    dialer.reset();
    if (!open) drop();
  }

  void move(HeadPlace at, const std::string& head_name) {
    const bool was_dialing = !open && state.phase == rounds::MemberPhase::kJoining;
    place = std::move(at);
    forget_attempts();
    closed_silently.reset();
    if (was_dialing) stop_dialing();
    deliver(rounds::HeadMoved{head_name});
    if (was_dialing) carry_out(rounds::Connect{});
  }

  // --- talking
  void read() {
    char buffer[kHeadReadBytes];
    std::string_view received;
    const auto end = read_some(socket.get(), session, buffer, received);
    if (end) return open ? lose(*end) : lose_in_handshake(end->why);
    session.receive(received);
    if (!open && !progress_handshake()) return;
    hear();
  }

  // Its service may hang, and this loop serves the operator, too.
  void ask_realm(AgentHandshake::RealmQuestion question) {
    const auto hear_answer = [this](AgentHandshake::RealmAnswer answer) {
      session.hear(std::move(answer));
      if (progress_handshake()) hear();
    };
    try {
      realm_call = std::make_unique<base::BackgroundCall>(loop, [this, hear_answer, question] {
        const auto answer = std::make_shared<AgentHandshake::RealmAnswer>(question());
        return [this, hear_answer, answer] {
          realm_call.reset();
          hear_answer(std::move(*answer));
        };
      });
    } catch (const base::Error& error) {  // there is no thread or descriptor for it
      hear_answer(error);
    }
  }

  // False if the handshake is not over, or if the connection has ended.
  bool progress_handshake() {
    switch (session.state()) {
      case AgentSession::State::kHandshake:
        flush();
        if (auto question = session.take_question()) ask_realm(std::move(question));
        return false;
      case AgentSession::State::kRefused:
        be_refused(session.failure());
        return false;
      case AgentSession::State::kFailed:
        not_a_head(session.failure());
        return false;
      case AgentSession::State::kOpen:
        break;
    }
    flush();
    handshake_timer.cancel();
    open = true;
    const std::weak_ptr<bool> alive = lives;
    deliver(rounds::Connected{});
    return !alive.expired() && open;
  }

  void hear() {
    const std::weak_ptr<bool> alive = lives;
    while (const auto message = session.next<rounds::HeadMessage>()) {
      if (const auto* accepted = std::get_if<rounds::Accepted>(&*message)) be_accepted(*accepted);
      deliver(rounds::Received{*message});
      if (alive.expired() || !open) return;
    }
    if (session.state() == AgentSession::State::kFailed)
      lose({rounds::LossKind::kGone, session.failure()});
  }

  // A member that is cut off must know it, and have ended its workers, before the head gives its
  // place away: the beat that is not acknowledged breaks the connection that much earlier.
  void be_accepted(const rounds::Accepted& accepted) {
    forget_attempts();
    closed_silently.reset();
    set_patience(socket.get(), accepted.silence_window - 2 * rounds::beat_interval(accepted));
  }

  void flush() {
    const bool more = send_unsent(socket.get(), session) == Sent::kSome;
    if (more == writing) return;
    writing = more;
    watch->on_writable(more ? base::EventLoop::Callback([this] { flush(); }) : nullptr);
  }

  void lose(const ConnectionEnd& end) {
    drop();
    deliver(rounds::Disconnected{end.why, end.kind});
  }

  void lose_in_handshake(const std::string& why) {
    const Moment now = rounds::read_clock();
    if (!closed_silently) closed_silently = now;
    if (now - *closed_silently >= std::min(kSilentCloses, state.settings.read_timeout))
      return not_a_head(why);
    drop();
    deliver(rounds::Unreachable{why});
  }

  // Treated as a head that has taken the connection and then said nothing.
  void not_a_head(const std::string& why) {
    drop();
    const std::weak_ptr<bool> alive = lives;
    deliver(rounds::Connected{});
    if (!alive.expired()) deliver(rounds::Disconnected{why});
  }

  void be_refused(const std::string& why) {
    drop();
    const std::weak_ptr<bool> alive = lives;
    deliver(rounds::Connected{});
    if (!alive.expired()) deliver(rounds::Received{rounds::Refused{why}});
  }

  base::EventLoop& loop;
  const Proof proof;
  const MembershipCallbacks callbacks;
  rounds::MemberState state;
  std::deque<rounds::MemberEvent> events;
  bool busy = false;  // is working them off
  HeadPlace place;
  bool has_tried = false;
  base::Backoff backoff{kFirstPause, kLongestPause};
  std::optional<Moment> closed_silently;  // since then
  UniqueFd socket;
  AgentSession session;
  bool open = false;  // the handshake is over
  bool writing = false;
  Moment said{};          // when the last word was
  Moment acknowledged{};  // and the last that the head's machine has certainly got
  Moment told_lease{};
  UniqueFd leaving;
  std::optional<Moment> armed;
  std::unique_ptr<base::FdWatch> watch;
  std::unique_ptr<base::FdWatch> leaving_watch;
  std::unique_ptr<AgentDialer> dialer;
  std::unique_ptr<base::BackgroundCall> realm_call;  // of the handshake
  base::Timer retry;
  base::Timer handshake_timer;
  base::Timer tick;
  base::Timer farewell;
  // Set when a callback has destroyed this object, for the code that has called it.
  std::shared_ptr<bool> lives = std::make_shared<bool>(true);
};

Membership::Membership(base::EventLoop& loop, rounds::MemberSettings settings, Proof proof,
                       MembershipCallbacks callbacks)
    : impl_(std::make_unique<Impl>(loop, std::move(settings), std::move(proof),
                                   std::move(callbacks))) {}

Membership::~Membership() = default;

void Membership::begin(HeadPlace place) {
  impl_->begin(std::move(place));
}

void Membership::tell(const rounds::MemberEvent& event) {
  impl_->deliver(event);
}

void Membership::move(HeadPlace place, const std::string& head_name) {
  impl_->move(std::move(place), head_name);
}

rounds::Moment Membership::lease() {
  return impl_->lease();
}

std::string Membership::reached_from() const {
  return impl_->open ? base::local_address(impl_->socket.get()) : "";
}

const rounds::MemberState& Membership::state() const {
  return impl_->state;
}

}  // namespace dtrun::rendezvous
