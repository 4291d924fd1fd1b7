#include "round_schedule.h"

#include <algorithm>
#include <cstddef>

#include "dtrun/base/check.h"

namespace dtrun::collectives {

namespace {

/// So many machines' parts are together after a round where one was before.
constexpr int kFan = 4;

/// A rank among the machines, which are numbered from one of them on.
class Places {
 public:
  Places(const MachineLists& machines, int rank) : machines_(machines) {
    while (!find(machine_, rank)) ++machine_;
  }

  int machines() const { return static_cast<int>(machines_.size()); }
  int machine() const { return machine_; }
  int place() const { return place_; }
  const std::vector<int>& members(int machine) const {
    return machines_[static_cast<std::size_t>(machine)];
  }
  int members_of(int machine) const { return static_cast<int>(members(machine).size()); }
  int after(int machine, int distance) const { return (machine + distance) % machines(); }
  int before(int machine, int distance) const {
    return (machine - distance + machines()) % machines();
  }
  /// The rank there that this one hears from.
  int source_on(int machine) const {
    return members(machine)[static_cast<std::size_t>(place_ % members_of(machine))];
  }
  /// The ranks there that hear from this one.
  template <typename Visit>
  void for_each_target_on(int machine, Visit visit) const {
    for (int place = 0; place < members_of(machine); ++place)
      if (place % members_of(machine_) == place_)
        visit(members(machine)[static_cast<std::size_t>(place)]);
  }
  template <typename Visit>
  void for_each_neighbour(Visit visit) const {
    for (const int peer : members(machine_))
      if (peer != members(machine_)[static_cast<std::size_t>(place_)]) visit(peer);
  }

 private:
  bool find(int machine, int rank) {
    const auto found = std::ranges::find(members(machine), rank);
    place_ = static_cast<int>(found - members(machine).begin());
    return found != members(machine).end();
  }

  const MachineLists& machines_;
  int machine_ = 0;
  int place_ = 0;
};

/// Where the ranks' elements lie side by side: by machine from one machine on, so that what some
/// machines in a row have is one slice.
class Rows {
 public:
  /// @param bytes_of what a rank has
  template <typename BytesOf>
  Rows(const Places& places, int first_machine, int size, BytesOf bytes_of)
      : of_rank_(static_cast<std::size_t>(size)) {
    for (int i = 0; i < places.machines(); ++i) {
      begins_.push_back(bytes_);
      for (const int rank : places.members(places.after(first_machine, i))) {
        const std::size_t bytes = bytes_of(rank);
        of_rank_[static_cast<std::size_t>(rank)] = {Region::scratch, 0, bytes_, bytes};
        bytes_ += bytes;
      }
    }
    begins_.push_back(bytes_);
  }

  std::size_t bytes() const { return bytes_; }
  const Slice& of(int rank) const { return of_rank_[static_cast<std::size_t>(rank)]; }
  /// @param begin in the order of the rows
  Slice of_machines(int begin, int count) const {
    const std::size_t from = begins_[static_cast<std::size_t>(begin)];
    return {Region::scratch, 0, from, begins_[static_cast<std::size_t>(begin + count)] - from};
  }

 private:
  std::size_t bytes_ = 0;
  std::vector<std::size_t> begins_;
  std::vector<Slice> of_rank_;
};

class RoundBuilder {
 public:
  explicit RoundBuilder(const CollectiveShape& shape)
      : shape_(shape), places_(*shape.machines, shape.rank) {}

  Schedule make() {
    schedule_.relays = true;
    switch (shape_.kind) {
      case OpKind::all_reduce:
      case OpKind::all_gather:
      case OpKind::split:
      case OpKind::barrier:
        to_all();
        break;
      case OpKind::reduce:
        to_root();
        break;
      default:
        DT_CHECK(shape_.kind == OpKind::broadcast);
        from_root();
        break;
    }
    return std::move(schedule_);
  }

 private:
  std::size_t bytes_of(std::int64_t count) const {
    return static_cast<std::size_t>(count) * shape_.item_bytes;
  }
  bool is_root() const { return shape_.rank == shape_.root; }
  int machines() const { return places_.machines(); }
  /// What a rank has to give.
  std::size_t given_by(int rank) const {
    if (shape_.kind == OpKind::barrier) return 0;
    if (shape_.kind == OpKind::all_reduce || shape_.kind == OpKind::reduce)
      return bytes_of(shape_.input_counts[0]);
    return bytes_of(shape_.output_counts[static_cast<std::size_t>(rank)]);
  }
  Step& next_step() { return schedule_.steps.emplace_back(); }
  /// @return the place of the own elements in scratch, where the others' will be
  Rows make_rows(int first_machine) {
    Rows rows(places_, first_machine, shape_.size, [this](int rank) { return given_by(rank); });
    schedule_.scratch_bytes = rows.bytes();
    return rows;
  }
  Slice own() const { return {Region::input, 0, 0, given_by(shape_.rank)}; }
  void keep_own(Step& step, const Rows& rows) const {
    if (own().bytes != 0)
      step.beside.push_back({LocalWork::Kind::copy, rows.of(shape_.rank), {own()}});
  }

  void to_all();
  void to_root();
  void from_root();
  void finish(const Rows& rows);

  // With a root: machines are numbered from the root's on, and the root or the first rank of a
  // machine speaks for it.
  int home() const { return Places(*shape_.machines, shape_.root).machine(); }
  int speaker(int number) const {
    return number == 0 ? shape_.root : places_.members(places_.after(home(), number)).front();
  }

  const CollectiveShape& shape_;
  const Places places_;
  Schedule schedule_;
};

/// Combines, or copies, what the rows have.
void RoundBuilder::finish(const Rows& rows) {
  std::vector<LocalWork>& work = schedule_.steps.back().local;
  if (shape_.kind == OpKind::all_gather || shape_.kind == OpKind::split) {
    for (int rank = 0; rank < shape_.size; ++rank)
      if (const std::size_t bytes = given_by(rank); bytes != 0)
        work.push_back({LocalWork::Kind::copy, {Region::output, rank, 0, bytes}, {rows.of(rank)}});
    return;
  }
  if (own().bytes == 0) return;
  LocalWork combine{LocalWork::Kind::combine, {Region::output, 0, 0, own().bytes}, {}};
  for (int rank = 0; rank < shape_.size; ++rank)
    combine.sources.push_back(rank == shape_.rank ? own() : rows.of(rank));
  work.push_back(std::move(combine));
}

void RoundBuilder::to_all() {
  const Rows rows = make_rows(places_.machine());
  Step& inside = next_step();
  keep_own(inside, rows);
  places_.for_each_neighbour([&](int peer) {
    inside.sends.push_back({peer, own()});
    inside.receives.push_back({peer, rows.of(peer)});
  });
  // Each machine has what itself and some machines behind it have given, in this order.
  for (int known = 1; known < machines(); known *= kFan) {
    Step& round = next_step();
    for (int i = 1; i < kFan && i * known < machines(); ++i) {
      const int distance = i * known;
      const int news = std::min(known, machines() - distance);
      places_.for_each_target_on(places_.before(places_.machine(), distance), [&](int peer) {
        round.sends.push_back({peer, rows.of_machines(0, news)});
      });
      round.receives.push_back({places_.source_on(places_.after(places_.machine(), distance)),
                                rows.of_machines(distance, news)});
    }
  }
  finish(rows);
}

void RoundBuilder::to_root() {
  const int number = places_.before(places_.machine(), home());
  if (shape_.rank != speaker(number)) {
    next_step().sends.push_back({speaker(number), own()});
    return;
  }
  // By the number of the machine.
  const Rows rows = make_rows(home());
  Step& inside = next_step();
  keep_own(inside, rows);
  places_.for_each_neighbour([&](int peer) { inside.receives.push_back({peer, rows.of(peer)}); });
  int known = 1;
  for (; known < machines() && number % (known * kFan) == 0; known *= kFan) {
    Step& round = next_step();
    for (int i = 1; i < kFan && number + i * known < machines(); ++i) {
      const int other = number + i * known;
      round.receives.push_back(
          {speaker(other), rows.of_machines(other, std::min(known, machines() - other))});
    }
  }
  if (is_root()) return finish(rows);
  next_step().sends.push_back({speaker(number - number % (known * kFan)),
                               rows.of_machines(number, std::min(known, machines() - number))});
}

void RoundBuilder::from_root() {
  const int number = places_.before(places_.machine(), home());
  const std::int64_t count = (is_root() ? shape_.input_counts : shape_.output_counts)[0];
  const Slice all{is_root() ? Region::input : Region::output, 0, 0, bytes_of(count)};
  if (shape_.rank != speaker(number)) {
    next_step().receives.push_back({speaker(number), all});
    return;
  }
  int known = 1;
  while (known < machines() && number % (known * kFan) == 0) known *= kFan;
  if (!is_root()) next_step().receives.push_back({speaker(number - number % (known * kFan)), all});
  Step& spread = next_step();
  // The machine that has the most others behind it first.
  while ((known /= kFan) > 0)
    for (int i = 1; i < kFan && number + i * known < machines(); ++i)
      spread.sends.push_back({speaker(number + i * known), all});
  places_.for_each_neighbour([&](int peer) { spread.sends.push_back({peer, all}); });
}

}  // namespace

Schedule round_schedule(const CollectiveShape& shape) {
  return RoundBuilder(shape).make();
}

std::vector<int> ranks_needed(OpKind kind, const MachineLists& machines, int rank, int root) {
  std::vector<int> needed;
  const auto add = [&](const std::vector<int>& ranks) {
    for (const int other : ranks)
      if (other != rank) needed.push_back(other);
  };
  if (kind != OpKind::reduce && kind != OpKind::broadcast) {
    for (const std::vector<int>& members : machines) add(members);
  } else {
    const Places home(machines, root);
    const Places own(machines, rank);
    const int number = own.before(own.machine(), home.machine());
    const auto speaker = [&](int other) {
      return other == 0 ? root : own.members(own.after(home.machine(), other)).front();
    };
    if (kind == OpKind::broadcast) {
      // Upwards, to the root.
      add({speaker(number)});
      for (int at = number, known = 1; at != 0; known *= kFan) {
        const int above = at - at % (known * kFan);
        if (above != at) add({speaker(above)});
        at = above;
      }
    } else if (rank == speaker(number)) {
      int behind = 1;
      while (behind < own.machines() && number % (behind * kFan) == 0) behind *= kFan;
      for (int other = number; other < std::min(number + behind, own.machines()); ++other)
        add(own.members(own.after(home.machine(), other)));
    }
  }
  std::ranges::sort(needed);
  return needed;
}

}  // namespace dtrun::collectives
