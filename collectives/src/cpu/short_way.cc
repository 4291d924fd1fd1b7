// The short way of a group's engine: a blocking collective by posts, parcels or short messages, in
// rings or on connections, runs on the caller's stack, under the engine's lock, without clock,
// queue or allocation. If a member is late, the rest of the collective becomes an ordinary
// Operation.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "collective_operation.h"
#include "dtrun/base/log.h"
#include "group_engine.h"
#include "overlap.h"
#include "parts.h"
#include "pause.h"
#include "shared_operation.h"
#include "short_call.h"

namespace dtrun::collectives::cpu {

using base::Deadline;

namespace {

/// @param ranks of the group
Collective owned(const CollectiveView& collective, int ranks, Deadline::Duration timeout) {
  Collective owned;
  const Buffer empty{.dtype = collective.fingerprint.dtype};
  if (const PartPeers* const peers = collective.peers) {
    owned.inputs = for_all_ranks(collective.inputs, peers->of_inputs, ranks, empty);
    owned.outputs = for_all_ranks(collective.outputs, peers->of_outputs, ranks, empty);
  } else {
    owned.inputs.assign(collective.inputs.begin(), collective.inputs.end());
    owned.outputs.assign(collective.outputs.begin(), collective.outputs.end());
  }
  owned.call.fingerprint = collective.fingerprint;
  owned.call.deadline = Deadline::after(timeout);
  return owned;
}

const DeliverySteps kNothingDone;

/// Most of them ask the kernel: together they take some tens of microseconds.
constexpr int kConnectionLooks = 40;

bool is_send(const ShortMessage& message) {
  return message.fingerprint.kind == OpKind::send;
}

/// How long a rank polls on the short way.
class Looks {
 public:
  explicit Looks(World& world, int most = std::numeric_limits<int>::max())
      : world_(world), crowding_(world.crowding()), most_(most) {}
  static Looks of_a_collective(World& world, bool has_connections) {
    const int looks = looks_of(world.crowding());
    return Looks(world, has_connections ? std::min(looks, kConnectionLooks) : looks);
  }

  /// Pauses after a look in vain. @param call is timed once the wait is no longer one of moments
  /// @return whether to look once more
  bool again(ShortCall* call) {
    if (yields_between_looks(look_, crowding_)) {
      if (call != nullptr) call->wait();
      // By the clock, too: a yield may take as long as another rank computes.
      if (!std::exchange(yields_, true)) yields_end_ = Deadline::after(time_to_exchange(crowding_));
      if (yields_end_.expired()) return false;
    }
    world_.pause(look_);
    return ++look_ < most_;
  }
  /// The same of a wait for that rank, which waits for nobody. Where ranks share cores, this one
  /// keeps its core for moments while that one can come on beside it.
  bool again_for(int world_rank, ShortCall* call) {
    if (crowding_ == Crowding::crowded && polls_ < kShortLooks && !world_.wants_core(world_rank)) {
      ++polls_;
      pause_between_looks(0, Crowding::alone);
      return true;
    }
    return again(call);
  }

 private:
  World& world_;
  const Crowding crowding_;
  const int most_;
  int look_ = 0;
  int polls_ = 0;  ///< of those without a yield
  bool yields_ = false;
  Deadline yields_end_ = Deadline::never();
};

}  // namespace

void GroupEngine::log_way(const CollectiveView& collective, Way way) const {
  log_way(collective, situation_of(collective), way);
}

void GroupEngine::log_way(const CollectiveView& collective, const Situation& situation,
                          Way way) const {
  base::log::debug(base::log::Component::kCollectives, "group '{}': {} goes {}", spec_.name,
                   collective.fingerprint.describe(), explain(situation, way));
}

void GroupEngine::log_in_place(const Fingerprint& fingerprint) const {
  base::log::debug(base::log::Component::kCollectives,
                   "group '{}': {} goes on in place, in the ranks' shared tensors", spec_.name,
                   fingerprint.describe());
}

void GroupEngine::log_elsewhere(const Fingerprint& fingerprint, Way way) const {
  base::log::debug(base::log::Component::kCollectives,
                   "group '{}': {} goes on by {}, because not all lies in shared tensors",
                   spec_.name, fingerprint.describe(), way_name(way));
}

template <typename Plan>
inline bool GroupEngine::take_now(const Plan& plan, SharedSteps& steps, std::uint64_t& number) {
  RankRecord& record = world_->record();
  // Before the peers see this rank come: in a trace nobody ends before all have begun.
  const std::int64_t begun_ns = record.is_exact() ? monotonic_ns() : 0;
  ShortCall* const call = plan.collective().short_call;
  const bool goes_one_way = plan.is_one_way() && plan.steps() == 1;
  try {
    Looks left = Looks::of_a_collective(*world_, has_connections());
    while (!steps.show_post(plan, meeting(Lane::prompt), Meeting::Room::halfway,
                            SharedSteps::Rings::later))
      if (!left.again(call)) return false;
    // Bookkeeping is done here because it overlaps with the members' posts.
    note(plan.collective().fingerprint, Lane::prompt);
    const std::uint64_t bytes = bytes_of_all(plan.collective());
    if (call != nullptr) call->count(bytes);
    number = record.pass(plan.collective().fingerprint, recorded_group_, bytes, begun_ns);
    steps.ring(plan, meeting(Lane::prompt));  // pass() has taken a mutex
    do {
      if (steps.take_posts(plan, meeting(Lane::prompt))) {
        record.passed(number);
        return true;
      }
    } while (
        !steps.has_other_parcels() &&
        (goes_one_way ? left.again_for(world_rank_of(steps.awaited()), call) : left.again(call)));
  } catch (const Disagreement&) {
    // The Operation below finds the disagreement again and reports it.
  } catch (const EarlierDisagreement&) {
  } catch (const base::Error&) {
    // Of this rank's memory for payloads: the Operation below asks again, and reports it.
    if (number == 0) return false;
    // A peer's memory cannot be mapped.
    record.go_on(number);
    record.end(number, RankRecord::Outcome::failed);
    throw;
  }
  // Other parcels may be on their way already.
  if (number != 0 && !steps.has_other_parcels()) record.go_on(number);
  return false;
}

template <typename Plan>
inline void GroupEngine::meet_by(const Plan& plan, Deadline::Duration timeout) {
  require_own_process();
  if (says_ways_) [[unlikely]]
    log_way(CollectiveView(plan.collective()), plan.way());
  std::shared_ptr<Operation> rest;
  {
    const std::scoped_lock lock(mutex_);
    if (!is_sound()) [[unlikely]]
      require_sound(plan.collective().fingerprint, bytes_of_all(plan.collective()));
    SharedSteps steps;
    std::uint64_t number = 0;
    if (is_eventless() && take_now(plan, steps, number)) [[likely]]
      return;
    // Copies, so that the originals need not lie in memory.
    rest = meet_later(SharedPlan(plan), SharedSteps(steps), number, timeout);
    if (rest == nullptr) return;
  }
  wait(*rest, Deadline::never());
}

template <OpKind kKind>
bool GroupEngine::meet_as(const CollectiveView& collective, Deadline::Duration timeout) {
  using Plan = SharedPlanOf<std::integral_constant<OpKind, kKind>>;
  const std::size_t item_bytes = tensors::item_size(collective.fingerprint.dtype);
  if constexpr (all_know_the_bytes(kKind)) {
    // As choose_way() would say, of which this is the first question. It is asked of longer ones.
    const std::size_t shown =
        static_cast<std::size_t>(shown_elements(collective, kKind)) * item_bytes;
    if (shown > most_beside_posts_) return false;
    meet_by(Plan::by_posts(collective, spec_.rank, size(), shown, item_bytes), timeout);
  } else {
    if (empty_parts_of(collective.fingerprint) != EmptyParts::travel) return false;
    const std::uint16_t parcel =
        parcel_of(collective, kKind, spec_.rank, item_bytes, most_beside_posts_);
    if (parcel == Post::kInMessages ||
        !Plan::may_lie_beside_posts(collective, size(), item_bytes, most_beside_posts_))
      return false;
    meet_by(Plan::by_parcels(collective, spec_.rank, size(), parcel, item_bytes), timeout);
  }
  return true;
}

bool GroupEngine::run_now(const CollectiveView& collective, Deadline::Duration timeout) {
  if (collective.peers != nullptr)
    return pass_one_now(collective, timeout) || deliver_now(collective, nullptr, timeout);
  if (has_posts_ && meet_now(collective, timeout)) [[likely]]
    return true;
  const Situation situation = situation_of(collective);
  const Way way = choose_way(situation);
  if (way == Way::post) {
    const SharedPlan plan(collective, spec_.rank, situation, way);
    meet_by(plan, timeout);
    return true;
  }
  if (way == Way::parcels) {
    Parcels parcels(collective, situation, spec_.rank);
    return deliver_now(collective, &parcels, timeout);
  }
  return way == Way::messages && size() > 1 && lane_of(situation) == Lane::prompt &&
         deliver_now(collective, nullptr, timeout);
}

bool GroupEngine::meet_now(const CollectiveView& collective, Deadline::Duration timeout) {
  switch (collective.kind()) {
    case OpKind::broadcast:
      return meet_as<OpKind::broadcast>(collective, timeout);
    case OpKind::all_reduce:
      return meet_as<OpKind::all_reduce>(collective, timeout);
    case OpKind::reduce:
      return meet_as<OpKind::reduce>(collective, timeout);
    case OpKind::all_gather:
      return meet_as<OpKind::all_gather>(collective, timeout);
    case OpKind::gather:
      return meet_as<OpKind::gather>(collective, timeout);
    case OpKind::scatter:
      return meet_as<OpKind::scatter>(collective, timeout);
    case OpKind::reduce_scatter:
      return meet_as<OpKind::reduce_scatter>(collective, timeout);
    case OpKind::all_to_all:
      return meet_as<OpKind::all_to_all>(collective, timeout);
    case OpKind::barrier:
      return meet_as<OpKind::barrier>(collective, timeout);
    default:
      return false;
  }
}

std::shared_ptr<Operation> GroupEngine::meet_later(const SharedPlan& plan, const SharedSteps& steps,
                                                   std::uint64_t number,
                                                   Deadline::Duration timeout) {
  const CollectiveView& collective = plan.collective();
  std::shared_ptr<Operation> rest;
  if (plan.has_parcels()) {
    rest = begin_rest(plan, steps, number, timeout);
    if (rest == nullptr) return nullptr;
  } else {
    if (collective.short_call != nullptr) collective.short_call->wait();
    rest = std::make_shared<SharedOperation>(shared_from_this(), owned(collective, size(), timeout),
                                             situation_of(collective), Way::post, steps);
  }
  rest->record_number = number;
  enqueue(rest);
  return rest;
}

std::shared_ptr<Operation> GroupEngine::begin_rest(const SharedPlan& plan, const SharedSteps& begun,
                                                   std::uint64_t number,
                                                   Deadline::Duration timeout) {
  const CollectiveView& collective = plan.collective();
  const Situation situation = situation_of(collective);
  const Deliveries all(collective.kind(), spec_.rank, size(), collective.root(),
                       EmptyParts::travel);
  Parcels parcels(collective, situation, spec_.rank);
  DeliverySteps steps(&parcels);
  if (begun.shown()) {
    parcels.set_shown();
    steps.send(all, collective, channels_);
  }
  if (begun.has_other_parcels()) {
    if (receive_now(steps, all, collective, number)) {
      world_->record().passed(number);
      return nullptr;
    }
    world_->record().go_on(number);
  }
  if (collective.short_call != nullptr) collective.short_call->wait();
  return make_collective_operation(shared_from_this(), owned(collective, size(), timeout),
                                   situation, Way::parcels, begun.shown() ? &steps : nullptr);
}

bool GroupEngine::deliver_now(const CollectiveView& collective, Parcels* parcels,
                              Deadline::Duration timeout) {
  require_own_process();
  std::shared_ptr<Operation> rest;
  if (!deliver_now(collective, parcels, timeout, rest)) return false;
  if (rest) wait(*rest, Deadline::never());
  return true;
}

bool GroupEngine::deliver_now(const CollectiveView& collective, Parcels* parcels,
                              Deadline::Duration timeout, std::shared_ptr<Operation>& rest) {
  const Deliveries all = collective.peers != nullptr
                             ? Deliveries(*collective.peers)
                             : Deliveries(collective.kind(), spec_.rank, size(), collective.root(),
                                          empty_parts_of(collective.fingerprint));
  const Way way = parcels != nullptr ? Way::parcels : Way::messages;
  DeliverySteps steps(parcels);
  const std::size_t bytes_of_rows = DeliverySteps::bytes_of_rows(all, collective);
  const std::scoped_lock lock(mutex_);
  const std::uint64_t bytes = collective.bytes();
  if (!is_eventless() || bytes_of_rows > DeliverySteps::kMostRowBytes ||
      !steps.can_begin(all, collective, bytes, least_lent_in(collective.kind()), channels_))
    return false;
  if (!is_sound()) [[unlikely]]
    require_sound(collective.fingerprint, bytes);
  RankRecord& record = world_->record();
  const std::int64_t begun_ns = record.is_exact() ? monotonic_ns() : 0;
  ShortCall* const call = collective.short_call;
  // Beside system calls, looks at the clock take no time.
  if (call != nullptr && has_connections()) call->wait();
  if (parcels != nullptr && !show_now(*parcels, call)) return false;
  if (says_ways_) log_way(collective, way);
  if (bytes_of_rows > rows_.size()) rows_.resize(bytes_of_rows);
  steps.set_rows(std::span(rows_).first(bytes_of_rows));
  const bool are_sent = steps.send(all, collective, channels_);
  // As with posts, books are kept while the peers' bytes are on their way.
  note(collective.fingerprint, Lane::prompt);
  if (call != nullptr) call->count(bytes);
  const std::uint64_t number =
      record.pass(collective.fingerprint, recorded_group_, bytes, begun_ns);
  if (are_sent && receive_now(steps, all, collective, number)) {
    if (parcels == nullptr) meeting(Lane::prompt).pass(collective.fingerprint);
    record.passed(number);
    return true;
  }
  rest = begin_rest(collective, way, steps, number, timeout);
  return true;
}

bool GroupEngine::pass_one_now(const CollectiveView& collective, Deadline::Duration timeout) {
  if (collective.inputs.size() + collective.outputs.size() != 1) return false;
  require_own_process();
  const bool gives = !collective.inputs.empty();
  const int peer =
      gives ? collective.peers->of_inputs.front() : collective.peers->of_outputs.front();
  const Buffer& part = gives ? collective.inputs.front() : collective.outputs.front();
  const std::span<std::byte> bytes(static_cast<std::byte*>(part.data), part.bytes());
  if (bytes.empty() || bytes.size() > kMostAtOnce || !channels_.shares_memory(peer)) return false;
  const Fingerprint& print = collective.fingerprint;
  std::shared_ptr<Operation> rest;
  {
    const std::scoped_lock lock(mutex_);
    if (!is_eventless() || !is_sound() || bytes.size() >= least_lent_in(print.kind)) return false;
    RankRecord& record = world_->record();
    const std::int64_t begun_ns = record.is_exact() ? monotonic_ns() : 0;
    bool is_over = gives;
    if (gives) {
      SendChannel* const to = with_room_for(peer, bytes.size());
      if (to == nullptr) return false;
      DeliverySteps::give_whole(peer, *to, bytes, print, channels_);
    } else {
      ReceiveChannel* const from = with_whole_of(peer, bytes.size());
      if (from == nullptr) return false;
      is_over = DeliverySteps::take_whole(peer, *from, bytes, print, channels_);
    }
    if (says_ways_) [[unlikely]]
      log_way(collective, Way::messages);
    note(print, Lane::prompt);
    if (collective.short_call != nullptr) collective.short_call->count(bytes.size());
    const std::uint64_t number = record.pass(print, recorded_group_, bytes.size(), begun_ns);
    if (is_over) [[likely]] {
      meeting(Lane::prompt).pass(print);
      record.passed(number);
      return true;
    }
    rest = begin_rest(collective, Way::messages, kNothingDone, number, timeout);
  }
  wait(*rest, Deadline::never());
  return true;
}

SendChannel* GroupEngine::with_room_for(int peer, std::size_t bytes) {
  SendChannel* const channel = channels_.made_to(peer, Lane::prompt);
  const bool has_room = channel != nullptr && channel->has_room(sizeof(MessageHeader) + bytes);
  return has_room ? channel : nullptr;
}

/// Waits for moments.
ReceiveChannel* GroupEngine::with_whole_of(int peer, std::size_t bytes) {
  ReceiveChannel* const channel = channels_.made_from(peer, Lane::prompt);
  const std::size_t all = sizeof(MessageHeader) + bytes;
  if (channel == nullptr) return nullptr;
  if (channel->has(all)) [[likely]]
    return channel;
  if (all > channel->most_at_once()) return nullptr;
  Looks left = Looks::of_a_collective(*world_, false);
  do {
    if (!left.again(nullptr)) return nullptr;
  } while (!channel->has(all));
  return channel;
}

std::shared_ptr<Operation> GroupEngine::begin_rest(const CollectiveView& collective, Way way,
                                                   const DeliverySteps& steps, std::uint64_t number,
                                                   Deadline::Duration timeout) {
  if (collective.short_call != nullptr) collective.short_call->wait();
  world_->record().go_on(number);
  std::shared_ptr<Operation> rest =
      make_collective_operation(shared_from_this(), owned(collective, size(), timeout),
                                situation_of(collective), way, &steps);
  rest->record_number = number;
  enqueue(rest);
  return rest;
}

bool GroupEngine::show_now(Parcels& parcels, ShortCall* call) {
  Looks left = Looks::of_a_collective(*world_, has_connections());
  try {
    while (!parcels.show(meeting(Lane::prompt), Meeting::Room::halfway))
      if (!left.again(call)) return false;
    return true;
  } catch (const Disagreement&) {
    // An operation finds these again, and reports them.
  } catch (const EarlierDisagreement&) {
  } catch (const base::Error&) {  // of this rank's memory
  }
  return false;
}

bool GroupEngine::receive_now(DeliverySteps& steps, const Deliveries& all,
                              const CollectiveView& collective, std::uint64_t number) {
  try {
    Looks left = Looks::of_a_collective(*world_, has_connections());
    do {
      if (has_connections()) look_at_connections(Asks::for_a_poll);
      if (steps.receive(all, collective, channels_)) return true;
    } while (left.again(collective.short_call));
  } catch (const Disagreement&) {
    // The operation finds it again, and reports it.
  } catch (const EarlierDisagreement&) {
  } catch (const base::Error&) {
    // The kernel does not say what has come: an operation asks again, and reports it.
    if (has_connections()) return false;
    // A peer's memory cannot be mapped.
    world_->record().go_on(number);
    world_->record().end(number, RankRecord::Outcome::failed);
    throw;
  }
  return false;
}

void GroupEngine::exchange_now(std::span<ShortMessage> messages) {
  require_own_process();
  const std::scoped_lock lock(mutex_);
  if (!is_sound() || channels_.anybody_left() || !idle()) return;
  // Beside system calls, looks at the clock take no time.
  if (has_connections())
    for (const ShortMessage& message : messages) message.short_call.wait();
  RankRecord& record = world_->record();
  const std::int64_t begun_ns = record.is_exact() ? monotonic_ns() : 0;
  end_begun_messages();
  begun_messages_.reserve(messages.size());  // before anything is sent
  for (std::size_t place = 0; place < messages.size(); ++place) {
    if (!is_send(messages[place])) continue;
    const PointToPoint::Sent sent = point_to_point_.send_now(messages[place], channels_);
    if (sent == PointToPoint::Sent::all) [[likely]]
      continue;
    end_sends(messages.first(place), begun_ns);
    if (sent == PointToPoint::Sent::a_part) begin_message(messages[place], begun_ns);
    return;
  }
  // Books are kept before a receive is over: while its message is on its way.
  std::uint64_t number = record.pass(messages, recorded_group_, begun_ns);  // of the next receive
  for (ShortMessage& message : messages) {
    if (!is_send(message)) continue;
    channels_.made_to(message.peer, Lane::point_to_point)->wake();
    end_message(message);
  }
  std::size_t over = 0;  // so many, from the front
  try {
    Looks looks(*world_, has_connections() ? kConnectionLooks : std::numeric_limits<int>::max());
    for (; over < messages.size(); ++over) {
      ShortMessage& message = messages[over];
      if (is_send(message)) continue;
      Taken taken;
      do {
        taken = receive_now(message);
      } while (taken == Taken::not_yet && looks.again(&message.short_call));
      if (taken != Taken::done) break;
      record.passed(number++);
      end_message(message);
    }
  } catch (...) {
    go_on_receiving(messages, number, over);
    end_begun_messages();
    throw;
  }
  go_on_receiving(messages, number, over);
}

void GroupEngine::end_message(ShortMessage& message) {
  message.short_call.count(message.buffer.bytes());
  message.is_done = true;
}

/// Of messages before one that is not sent: those that are.
void GroupEngine::end_sends(std::span<ShortMessage> messages, std::int64_t begun_ns) {
  for (ShortMessage& message : messages) {
    if (!is_send(message)) continue;
    world_->record().pass({&message, 1}, recorded_group_, begun_ns);
    channels_.made_to(message.peer, Lane::point_to_point)->wake();
    end_message(message);
  }
}

/// The rest of it is to become an operation.
void GroupEngine::begin_message(const ShortMessage& message, std::int64_t begun_ns) {
  const std::uint64_t number =
      world_->record().pass(message.fingerprint, recorded_group_, message.buffer.bytes(), begun_ns);
  world_->record().go_on(number);
  begun_messages_.push_back({message.fingerprint.sequence, number});
}

/// The receives from that place on are to become operations.
/// @param number of the first of them in the record
void GroupEngine::go_on_receiving(std::span<const ShortMessage> messages, std::uint64_t number,
                                  std::size_t place) {
  for (; place < messages.size(); ++place) {
    if (is_send(messages[place])) continue;
    world_->record().go_on(number);
    begun_messages_.push_back({messages[place].fingerprint.sequence, number++});
  }
}

Taken GroupEngine::receive_now(const ShortMessage& message) {
  try {
    if (has_connections()) look_at_connections(Asks::for_a_poll);
  } catch (const base::Error&) {
    // The kernel does not say what has come: an operation asks again, and reports it.
    return Taken::other_way;
  }
  return point_to_point_.receive_now(message, channels_);
}

void GroupEngine::end_begun_messages() {
  for (const BegunMessage& message : begun_messages_)
    world_->record().end(message.number, RankRecord::Outcome::failed);
  begun_messages_.clear();
}

}  // namespace dtrun::collectives::cpu
