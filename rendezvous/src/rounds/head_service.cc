// All connections stand in one EpollSet. They come from the listener of the store's server, which
// tells agents from the store's clients by their first byte.
#include "dtrun/rendezvous/head_service.h"

#include <sys/socket.h>

#include <array>
#include <deque>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dtrun/base/background_call.h"
#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "dtrun/rendezvous/master_address.h"
#include "dtrun/rendezvous/round_clock.h"
#include "rounds/agent_socket.h"
#include "rounds/head_sessions.h"
#include "wire/epoll_set.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;
using base::UniqueFd;
using rounds::MemberId;
using rounds::Moment;

constexpr std::size_t kEventsPerTurn = 256;
constexpr std::size_t kAgentReadBytes = 16 << 10;

// A member may be gone when its events come.
std::uint64_t tag_of(MemberId id) {
  return static_cast<std::uint64_t>(id);
}

HeadSessions::Limits limits_of(const HeadServiceOptions& options) {
  HeadSessions::Limits limits;
  limits.newcomers = options.max_newcomers;
  limits.newcomer_time = options.newcomer_time;
  return limits;
}

}  // namespace

struct HeadService::Impl {
  enum class Stage { kTalking, kLastWords, kLingering };
  struct Connection {
    UniqueFd fd;
    Stage stage = Stage::kTalking;
    bool writing = false;  // waits for the socket to take more
  };
  struct Farewell {
    MemberId id;
    Moment until;
  };

  using Questions = std::vector<std::pair<MemberId, AgentHandshake::RealmQuestion>>;
  using Answers = std::vector<std::pair<MemberId, AgentHandshake::RealmAnswer>>;

  Impl(base::EventLoop& event_loop, rounds::HeadState head, HeadServiceOptions given,
       HeadServiceCallbacks calls)
      : loop(event_loop),
        options(std::move(given)),
        callbacks(std::move(calls)),
        sessions(std::move(head), options.proof, limits_of(options),
                 [this](MemberId id) { return address_of(id); }),
        buffer(kAgentReadBytes, '\0'),
        watch(loop, sockets.fd()),
        timer(loop) {
    watch.on_readable([this] {
      serve_ready();
      settle();
    });
    arm_timer();
  }

  // --- coming
  void adopt(UniqueFd fd, std::string_view first_bytes) {
    const Moment now = rounds::read_clock();
    prepare_agent_socket(fd.get());
    set_patience(fd.get(), sessions.head().settings.silence_window);
    const MemberId id = sessions.open(fresh_nonce(), now);
    add(id, std::move(fd));
    sessions.receive(id, first_bytes, now);
  }

  UniqueFd own_agent() {
    DT_CHECK(!own);
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw base::system_error("make a socket pair", "raise the limit (ulimit -n)");
    UniqueFd here(ends[0]), there(ends[1]);
    prepare_agent_socket(here.get());
    own = sessions.open_own(rounds::read_clock());
    add(*own, std::move(here));
    settle();
    return there;
  }

  void add(MemberId id, UniqueFd fd) {
    if (!sockets.add(fd.get(), EPOLLIN, tag_of(id)))
      throw base::system_error("watch an agent's connection");
    connections[id].fd = std::move(fd);
  }

  bool part_with_one_since(Moment moment) {
    if (drop_oldest_farewell()) return true;
    if (!sessions.part_with_newcomer_since(moment)) return false;
    carry_out_effects();
    return true;
  }

  // Closes the oldest connection that only waits for its peer to hang up. The peer loses the last
  // words at the most.
  bool drop_oldest_farewell() {
    while (!farewells.empty()) {
      const MemberId id = farewells.front().id;
      farewells.pop_front();
      if (connections.erase(id) == 0) continue;
      sessions.forget(id);
      return true;
    }
    return false;
  }

  // --- talking
  // @return how many connections had something
  std::size_t serve_ready() {
    std::array<epoll_event, kEventsPerTurn> room;
    const std::span<epoll_event> events = sockets.ready(room);
    const Moment now = rounds::read_clock();
    for (const epoll_event& event : events) {
      const auto id = static_cast<MemberId>(event.data.u64);
      if ((event.events & EPOLLOUT) != 0) flush(id);
      if ((event.events & ~EPOLLOUT) != 0) read(id, now);
    }
    return events.size();
  }

  void read(MemberId id, Moment now) {
    const auto found = connections.find(id);
    AgentSession* session = sessions.find(id);
    if (found == connections.end() || session == nullptr) return;
    Connection& connection = found->second;
    std::string_view received;
    if (const auto end = read_some(connection.fd.get(), *session, buffer, received)) {
      connections.erase(found);
      sessions.lose(id, end->kind, end->why, now);
    } else if (connection.stage == Stage::kTalking) {
      sessions.receive(id, received, now);
    }
  }

  void flush(MemberId id) {
    const auto found = connections.find(id);
    AgentSession* session = sessions.find(id);
    if (found == connections.end() || session == nullptr) return;
    Connection& connection = found->second;
    const bool writing = send_unsent(connection.fd.get(), *session) == Sent::kSome;
    if (writing != connection.writing) {
      sockets.change(connection.fd.get(), writing ? EPOLLIN | EPOLLOUT : EPOLLIN, tag_of(id));
      connection.writing = writing;
    }
    if (!writing && connection.stage == Stage::kLastWords) {
      // The other side closes; our end with its words unread would take back what was sent.
      ::shutdown(connection.fd.get(), SHUT_WR);
      connection.stage = Stage::kLingering;
    }
  }

  void part(MemberId id, Parting parting, Moment now) {
    const auto found = connections.find(id);
    if (parting == Parting::kAtOnce || found == connections.end()) {
      if (found != connections.end()) connections.erase(found);
      return sessions.forget(id);
    }
    found->second.stage = Stage::kLastWords;
    farewells.push_back({id, now + options.farewell_time});
    flush(id);
  }

  // --- the end of every callback
  void settle() {
    carry_out_effects();
    while (!farewells.empty() && !connections.contains(farewells.front().id)) farewells.pop_front();
    arm_timer();
    if (!ended || finished || sessions.keeps_verdict() || !all_told()) return;
    finished = true;
    const auto on_end = callbacks.on_end;
    on_end();
  }

  void carry_out_effects() {
    for (HeadEffects effects = sessions.take_effects(); !effects.empty();
         effects = sessions.take_effects()) {
      const Moment now = rounds::read_clock();
      for (const MemberId id : effects.written) flush(id);
      for (const auto& [id, parting] : effects.parted) part(id, parting, now);
      for (const rounds::Note& note : effects.notes) callbacks.on_note(note);
      if (callbacks.on_worker_end)
        for (const rounds::WorkerEnd& end : effects.ends) callbacks.on_worker_end(end);
      for (const auto& [id, prepare] : effects.opening) open_round(id, prepare);
      for (auto& question : effects.questions) questions.push_back(std::move(question));
      ask_realm();
      if (effects.verdict) judge(*effects.verdict);
      ended = ended || effects.ended;
    }
  }

  // If the service hangs, new members wait one after the other; nobody else does.
  void ask_realm() {
    if (realm_call || questions.empty()) return;
    const auto asked = std::make_shared<Questions>(std::exchange(questions, {}));
    try {
      realm_call = std::make_unique<base::BackgroundCall>(loop, [this, asked] {
        const auto answers = std::make_shared<Answers>();
        for (const auto& [id, question] : *asked) answers->emplace_back(id, question());
        return [this, answers] {
          realm_call.reset();
          hear_realm(*answers);
          settle();
        };
      });
    } catch (const base::Error& error) {  // there is no thread or descriptor for it
      Answers answers;
      for (const auto& [id, question] : *asked) answers.emplace_back(id, error);
      hear_realm(answers);
    }
  }

  void hear_realm(Answers& answers) {
    const Moment now = rounds::read_clock();
    for (auto& [id, answer] : answers) sessions.hear_realm(id, std::move(answer), now);
  }

  void open_round(MemberId id, const rounds::Prepare& prepare) {
    if (!callbacks.before_round) return sessions.open_round(id, prepare);
    callbacks.before_round(prepare.round, [this, alive = std::weak_ptr<int>(lives), id, prepare] {
      if (alive.expired()) return;
      sessions.open_round(id, prepare);
      // It may have been called at once.
      loop.post([this, alive] {
        if (!alive.expired()) settle();
      });
    });
  }

  void judge(const rounds::Close& verdict) {
    if (!callbacks.before_close) return sessions.tell_verdict();
    callbacks.before_close(verdict, [this, alive = std::weak_ptr<int>(lives)] {
      if (alive.expired() || !sessions.keeps_verdict()) return;
      sessions.tell_verdict();
      // It may have been called at once.
      loop.post([this, alive] {
        if (!alive.expired()) settle();
      });
    });
  }

  bool all_told() const {
    for (const Farewell& farewell : farewells)
      if (connections.contains(farewell.id)) return false;
    return true;
  }

  void arm_timer() {
    Moment due = sessions.deadline();
    if (!farewells.empty()) due = std::min(due, farewells.front().until);
    if (std::exchange(armed, due) != due)
      timer.start(rounds::deadline_at(due), [this] { on_time(); });
  }

  void on_time() {
    armed.reset();
    // After this machine stood still, messages that came meanwhile are read before a member counts
    // as silent.
    for (std::size_t left = connections.size() / kEventsPerTurn + 1; left > 0; --left)
      if (serve_ready() < kEventsPerTurn) break;
    carry_out_effects();
    const Moment now = rounds::read_clock();
    while (!farewells.empty() && farewells.front().until <= now) {
      connections.erase(farewells.front().id);
      sessions.forget(farewells.front().id);
      farewells.pop_front();
    }
    sessions.tick(now);
    settle();
  }

  // The address by which the workers of all nodes reach that agent's machine.
  std::string address_of(MemberId id) const {
    const auto found = connections.find(id);
    if (found == connections.end()) return options.endpoint_host;
    const std::string peer =
        id == own ? std::string("127.0.0.1") : base::peer_address(found->second.fd.get());
    if (!is_loopback(peer)) return peer;
    std::vector<std::string> reached_at;
    for (const auto& [other, connection] : connections)
      if (other != own) reached_at.push_back(base::local_address(connection.fd.get()));
    return master_address(options.endpoint_host, options.listening_at, reached_at);
  }

  base::EventLoop& loop;
  const HeadServiceOptions options;
  const HeadServiceCallbacks callbacks;
  HeadSessions sessions;
  std::optional<MemberId> own;
  EpollSet sockets;
  std::string buffer;
  std::unordered_map<MemberId, Connection> connections;
  Questions questions;  // not asked yet
  std::unique_ptr<base::BackgroundCall> realm_call;
  std::deque<Farewell> farewells;  // in the order of their time
  std::optional<Moment> armed;
  bool ended = false;
  bool finished = false;
  base::FdWatch watch;
  base::Timer timer;
  std::shared_ptr<int> lives = std::make_shared<int>();  // for callbacks that others keep
};

HeadService::HeadService(base::EventLoop& loop, rounds::HeadState head, HeadServiceOptions options,
                         HeadServiceCallbacks callbacks)
    : impl_(std::make_unique<Impl>(loop, std::move(head), std::move(options),
                                   std::move(callbacks))) {}

HeadService::~HeadService() = default;

void HeadService::adopt(UniqueFd connection, const std::string& first_bytes) {
  impl_->adopt(std::move(connection), first_bytes);
  impl_->settle();
}

bool HeadService::part_with_one_since(Deadline::Clock::time_point moment) {
  return impl_->part_with_one_since(moment.time_since_epoch());
}

UniqueFd HeadService::own_agent() {
  return impl_->own_agent();
}

void HeadService::step_down() {
  impl_->sessions.step_down();
  impl_->settle();
}

const rounds::HeadState& HeadService::state() const {
  return impl_->sessions.head();
}

}  // namespace dtrun::rendezvous
