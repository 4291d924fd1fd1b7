#include "hierarchical_schedule.h"

#include <algorithm>
#include <utility>

#include "chunk.h"

namespace dtrun::collectives {

namespace {

/// Scratch rows start on cache lines, so that pieces of two peers never share one.
constexpr std::size_t kLine = 64;

/// Of a piece whose elements each have one owner on every machine: those with the same owners.
struct Segment {
  Chunk range;
  std::vector<int> owners;  ///< by machine
};

class Builder {
 public:
  explicit Builder(const CollectiveShape& shape) : shape_(shape), machines_(*shape.machines) {
    for (std::size_t machine = 0; machine < machines_.size(); ++machine)
      for (std::size_t place = 0; place < machines_[machine].size(); ++place)
        if (machines_[machine][place] == shape.rank) {
          machine_ = static_cast<int>(machine);
          place_ = static_cast<int>(place);
        } else if (machines_[machine][place] == shape.root) {
          roots_machine_ = static_cast<int>(machine);
        }
    if (shape.rank == shape.root) roots_machine_ = machine_;
  }

  Schedule make() {
    switch (shape_.kind) {
      case OpKind::all_reduce:
      case OpKind::reduce:
        reduction();
        break;
      case OpKind::all_gather:
        all_gather();
        break;
      case OpKind::reduce_scatter:
        reduce_scatter();
        break;
      default:
        broadcast();
        break;
    }
    for (Step& step : schedule_.steps) {
      put_side_by_side(step.sends, 1);
      put_side_by_side(step.receives, -1);
    }
    return std::move(schedule_);
  }

 private:
  // Machines, and the places of ranks on them.
  int machines() const { return static_cast<int>(machines_.size()); }
  const std::vector<int>& members(int machine) const {
    return machines_[static_cast<std::size_t>(machine)];
  }
  int members_of(int machine) const { return static_cast<int>(members(machine).size()); }
  int member(int machine, int place) const {
    return members(machine)[static_cast<std::size_t>(place)];
  }
  int local_size() const { return members_of(machine_); }
  /// Every rank counts as a machine.
  bool each_alone() const { return machines() == shape_.size; }
  /// Otherwise this rank's elements are the machine's part as they are.
  bool combines_inside() const { return local_size() > 1 || (has_wide_parts() && !each_alone()); }
  bool has_wide_parts() const { return shape_.part_bytes != shape_.item_bytes; }
  std::size_t part_bytes() const { return each_alone() ? shape_.item_bytes : shape_.part_bytes; }
  LocalWork::Kind last_work() const {
    return each_alone() ? LocalWork::Kind::combine : LocalWork::Kind::combine_parts;
  }
  template <typename Visit>
  void for_each_local_peer(Visit visit) const {
    for (int place = 0; place < local_size(); ++place)
      if (place != place_) visit(place, member(machine_, place));
  }
  template <typename Visit>
  void for_each_other_machine(Visit visit) const {
    for (int machine = 0; machine < machines(); ++machine)
      if (machine != machine_) visit(machine);
  }

  // Steps. Pieces follow one another: one is in its first phase while the one before is in its
  // second. All ranks list what goes from one to another in the same order: by piece, phase, place
  // in the buffer.
  Step& step(std::int64_t piece, int phase) {
    const auto index = static_cast<std::size_t>(piece + phase);
    if (schedule_.steps.size() <= index) schedule_.steps.resize(index + 1);
    return schedule_.steps[index];
  }
  static void send(Step& step, int peer, const Slice& slice) {
    if (slice.bytes != 0) step.sends.push_back({peer, slice});
  }
  static void receive(Step& step, int peer, const Slice& slice) {
    if (slice.bytes != 0) step.receives.push_back({peer, slice});
  }
  static void work(Step& step, LocalWork::Kind kind, const Slice& destination,
                   std::vector<Slice> sources) {
    if (destination.bytes != 0) step.local.push_back({kind, destination, std::move(sources)});
  }
  /// The transfers of one peer, from the neighbour on: so not all ranks write to rank 0 first.
  void put_side_by_side(std::vector<Transfer>& transfers, int direction) const {
    std::ranges::stable_sort(transfers, {}, [&](const Transfer& transfer) {
      return (direction * (transfer.peer - shape_.rank) + shape_.size) % shape_.size;
    });
  }

  // Memory.
  std::size_t bytes_of(std::int64_t count) const {
    return static_cast<std::size_t>(count) * shape_.item_bytes;
  }
  Slice slice(Region region, int index, const Chunk& range) const {
    return {region, index, bytes_of(range.begin), bytes_of(range.size())};
  }
  /// Rows of scratch, each for at most so many elements.
  struct Rows {
    std::size_t begin = 0;
    std::size_t stride = 0;
    std::size_t at(std::size_t row) const { return begin + row * stride; }
  };
  Rows rows(int count, std::int64_t elements, std::size_t item_bytes) {
    const std::size_t bytes = static_cast<std::size_t>(elements) * item_bytes;
    const Rows made{schedule_.scratch_bytes, (bytes + kLine - 1) / kLine * kLine};
    schedule_.scratch_bytes += static_cast<std::size_t>(count) * made.stride;
    return made;
  }
  static Slice scratch(std::size_t offset, std::size_t bytes) {
    return {Region::scratch, 0, offset, bytes};
  }
  /// Elements of a row, or of its part, from `begin` on.
  static Slice elements(std::size_t row, std::int64_t begin, std::int64_t count,
                        std::size_t item_bytes) {
    return scratch(row + static_cast<std::size_t>(begin) * item_bytes,
                   static_cast<std::size_t>(count) * item_bytes);
  }
  /// Of a machine's part, which is of `range`: that of `within`.
  Slice of_part(Slice whole, const Chunk& range, const Chunk& within) const {
    whole.offset += static_cast<std::size_t>(within.begin - range.begin) * part_bytes();
    whole.bytes = static_cast<std::size_t>(within.size()) * part_bytes();
    return whole;
  }
  static Chunk shifted(Chunk chunk, std::int64_t by) { return {chunk.begin + by, chunk.end + by}; }
  static Chunk piece_of(std::int64_t count, std::int64_t size, std::int64_t piece) {
    const std::int64_t begin = std::min(piece * size, count);
    return {begin, std::min(begin + size, count)};
  }
  std::int64_t elements_in(std::size_t bytes) const {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / shape_.item_bytes));
  }
  /// Elements of a piece of which each rank gets a share.
  std::int64_t shared_piece() const {
    return elements_in(shape_.transfer_bytes * static_cast<std::size_t>(shape_.size));
  }

  // Reductions: combined on the machines, then between them, each owner its part; then spread.
  void reduction();
  std::int64_t elements_combined_here(const Chunk& piece) const;
  void reduce_piece(std::int64_t number, const Chunk& piece);
  Slice reduce_inside(Step& step, const Chunk& piece, const Chunk& own, std::int64_t number);
  std::vector<Segment> segments_of(const Chunk& piece) const;
  Chunk chunk_on(int machine, int place, const Chunk& piece) const {
    return shifted(chunk_of(piece.size(), members_of(machine), place), piece.begin);
  }
  /// Of two machines the other one would send half of its elements, and as many results: so the
  /// root's combines all. Among more the network to it would take the most.
  bool roots_machine_combines() const { return shape_.kind == OpKind::reduce && machines() == 2; }
  /// Which machine combines what of a segment.
  Chunk part_of(const Segment& segment, int machine) const {
    if (roots_machine_combines()) {
      const std::int64_t begin = segment.range.begin;
      return {begin, machine == roots_machine_ ? segment.range.end : begin};
    }
    return shifted(chunk_of(segment.range.size(), machines(), machine), segment.range.begin);
  }
  void all_gather();
  void reduce_scatter();
  void reduce_scatter_piece(std::int64_t number, std::int64_t size, int targets);
  void broadcast();
  void broadcast_piece(std::int64_t number, const Chunk& piece);

  const CollectiveShape& shape_;
  const MachineLists& machines_;
  int machine_ = 0;
  int place_ = 0;
  int roots_machine_ = 0;
  Schedule schedule_;
  // Of reductions: where the neighbours' elements and the other machines' parts arrive; this
  // machine's part, and the result. Of two pieces where one is sent while the next is combined.
  Rows inside_;
  Rows combined_;
  Rows between_;
  Rows results_;
};

// ---- all_reduce and reduce

void Builder::reduction() {
  const std::int64_t count = shape_.input_counts[0];
  // Each owner's share of a piece is sent at once; of the longer shares that the root's get, half
  // is combined while the other half travels.
  const std::int64_t most = roots_machine_combines() ? shared_piece() / 4 : shared_piece();
  const std::int64_t size = std::clamp<std::int64_t>(count, 1, std::max<std::int64_t>(most, 1));
  const std::int64_t pieces = (count + size - 1) / size;
  if (pieces == 0) return;
  const std::int64_t chunk = (size + local_size() - 1) / local_size();
  // The last piece is shorter, but rounding may give this rank more of it.
  const std::int64_t own = std::max(elements_combined_here(piece_of(count, size, 0)),
                                    elements_combined_here(piece_of(count, size, pieces - 1)));
  inside_ = rows(local_size() - 1, chunk, shape_.item_bytes);
  combined_ = rows(combines_inside() ? 2 : 0, chunk, part_bytes());
  between_ = rows(machines() - 1, own, part_bytes());
  results_ = rows(shape_.kind == OpKind::reduce ? 2 : 0, own, shape_.item_bytes);
  for (std::int64_t number = 0; number < pieces; ++number)
    reduce_piece(number, piece_of(count, size, number));
}

std::int64_t Builder::elements_combined_here(const Chunk& piece) const {
  std::int64_t elements = 0;
  for (const Segment& segment : segments_of(piece))
    if (segment.owners[static_cast<std::size_t>(machine_)] == shape_.rank)
      elements += part_of(segment, machine_).size();
  return elements;
}

/// Cuts the piece wherever a machine's owner changes, so that unequal machines find each other.
std::vector<Segment> Builder::segments_of(const Chunk& piece) const {
  std::vector<std::int64_t> cuts;
  for (int machine = 0; machine < machines(); ++machine)
    for (int place = 0; place < members_of(machine); ++place)
      cuts.push_back(chunk_on(machine, place, piece).begin);
  cuts.push_back(piece.end);
  std::ranges::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Segment> segments;
  std::vector<int> places(machines_.size(), 0);
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    Segment segment{{cuts[i], cuts[i + 1]}, {}};
    for (int machine = 0; machine < machines(); ++machine) {
      int& place = places[static_cast<std::size_t>(machine)];
      while (chunk_on(machine, place, piece).end <= segment.range.begin) ++place;
      segment.owners.push_back(member(machine, place));
    }
    segments.push_back(std::move(segment));
  }
  return segments;
}

/// @return this machine's part of the own chunk
Slice Builder::reduce_inside(Step& step, const Chunk& piece, const Chunk& own,
                             std::int64_t number) {
  const Slice mine = slice(Region::input, 0, own);
  if (!combines_inside()) return mine;
  std::vector<Slice> sources(static_cast<std::size_t>(local_size()), mine);
  std::size_t row = 0;
  for_each_local_peer([&](int place, int peer) {
    send(step, peer, slice(Region::input, 0, chunk_on(machine_, place, piece)));
    const Slice theirs = scratch(inside_.at(row++), mine.bytes);
    receive(step, peer, theirs);
    sources[static_cast<std::size_t>(place)] = theirs;
  });
  const Slice part =
      elements(combined_.at(static_cast<std::size_t>(number % 2)), 0, own.size(), part_bytes());
  work(step, LocalWork::Kind::combine_part, part, std::move(sources));
  return part;
}

void Builder::reduce_piece(std::int64_t number, const Chunk& piece) {
  const bool to_all = shape_.kind == OpKind::all_reduce;
  const bool is_root = shape_.rank == shape_.root;
  const Chunk own = chunk_on(machine_, place_, piece);
  step(number, 3);  // makes all four
  const Slice part = reduce_inside(step(number, 0), piece, own, number);
  Step& exchange = step(number, 1);
  Step& spread = step(number, 2);
  std::int64_t combined = 0;  // here, of the segments before
  for (const Segment& segment : segments_of(piece)) {
    const auto owner_on = [&](int machine) {
      return segment.owners[static_cast<std::size_t>(machine)];
    };
    const auto output = [&](int machine) {
      return slice(Region::output, 0, part_of(segment, machine));
    };
    if (!to_all && is_root)
      for (int machine = 0; machine < machines(); ++machine)
        if (owner_on(machine) != shape_.rank) receive(spread, owner_on(machine), output(machine));
    if (owner_on(machine_) != shape_.rank) continue;
    const Chunk mine = part_of(segment, machine_);
    const Slice result = to_all || is_root
                             ? output(machine_)
                             : elements(results_.at(static_cast<std::size_t>(number % 2)), combined,
                                        mine.size(), shape_.item_bytes);
    std::vector<Slice> sources(machines_.size(), of_part(part, own, mine));
    std::size_t row = 0;
    for_each_other_machine([&](int machine) {
      send(exchange, owner_on(machine), of_part(part, own, part_of(segment, machine)));
      const Slice theirs = elements(between_.at(row++), combined, mine.size(), part_bytes());
      receive(exchange, owner_on(machine), theirs);
      sources[static_cast<std::size_t>(machine)] = theirs;
      if (!to_all) return;
      send(spread, owner_on(machine), result);
      receive(spread, owner_on(machine), output(machine));
    });
    work(exchange, last_work(), result, std::move(sources));
    if (!to_all && !is_root) send(spread, shape_.root, result);
    combined += mine.size();
  }
  if (!to_all) return;
  for_each_local_peer([&](int place, int peer) {
    send(step(number, 3), peer, slice(Region::output, 0, own));
    receive(step(number, 3), peer, slice(Region::output, 0, chunk_on(machine_, place, piece)));
  });
}

// ---- all_gather: one rank of each machine gets a part from afar and gives it to its neighbours

void Builder::all_gather() {
  const std::int64_t size = elements_in(shape_.transfer_bytes);
  const std::int64_t longest = *std::ranges::max_element(shape_.output_counts);
  for (std::int64_t number = 0; number * size < longest; ++number) {
    const auto part = [&](int rank) {
      return slice(Region::output, rank,
                   piece_of(shape_.output_counts[static_cast<std::size_t>(rank)], size, number));
    };
    Slice own = part(shape_.rank);
    own.region = Region::input;
    own.index = 0;
    step(number, 1);  // makes both
    Step& first = step(number, 0);
    Step& second = step(number, 1);
    work(first, LocalWork::Kind::copy, part(shape_.rank), {own});
    for_each_local_peer([&](int, int peer) {
      send(first, peer, own);
      receive(first, peer, part(peer));
    });
    for_each_other_machine([&](int machine) {
      send(first, member(machine, place_ % members_of(machine)), own);
      for (int place = 0; place < members_of(machine); ++place) {
        const int owner = member(machine, place);
        const int taker = member(machine_, place % local_size());
        if (taker != shape_.rank) {
          receive(second, taker, part(owner));
          continue;
        }
        receive(first, owner, part(owner));
        for_each_local_peer([&](int, int peer) { send(second, peer, part(owner)); });
      }
    });
  }
}

// ---- reduce_scatter: for each rank elsewhere one of each machine combines, and sends the sum

void Builder::reduce_scatter() {
  const std::int64_t size = elements_in(shape_.transfer_bytes);
  const std::int64_t longest = *std::ranges::max_element(shape_.input_counts);
  const std::int64_t most = std::min(size, longest);
  // For how many ranks this one combines.
  int targets = 0;
  for (int machine = 0; machine < machines(); ++machine)
    for (int place = 0; place < members_of(machine); ++place)
      targets += place % local_size() == place_ ? 1 : 0;
  inside_ = rows(targets * (local_size() - 1), most, shape_.item_bytes);
  combined_ = rows(combines_inside() ? 2 * targets : 0, most, part_bytes());
  between_ = rows(machines() - 1, most, part_bytes());
  for (std::int64_t number = 0; number * size < longest; ++number)
    reduce_scatter_piece(number, size, targets);
}

void Builder::reduce_scatter_piece(std::int64_t number, std::int64_t size, int targets) {
  const auto chunk = [&](int rank) {
    return piece_of(shape_.input_counts[static_cast<std::size_t>(rank)], size, number);
  };
  step(number, 1);  // makes both
  Step& inside = step(number, 0);
  Step& between = step(number, 1);
  std::size_t sums = static_cast<std::size_t>(number % 2 * targets), row = 0;
  Slice own_part;
  for (int machine = 0; machine < machines(); ++machine)
    for (int place = 0; place < members_of(machine); ++place) {
      const int target = member(machine, place);
      const int combiner = member(machine_, place % local_size());
      const Slice mine = slice(Region::input, target, chunk(target));
      if (combiner != shape_.rank) {
        send(inside, combiner, mine);
        continue;
      }
      Slice part = mine;
      if (combines_inside()) {
        std::vector<Slice> sources(static_cast<std::size_t>(local_size()), mine);
        for_each_local_peer([&](int peer_place, int peer) {
          const Slice theirs = scratch(inside_.at(row++), mine.bytes);
          receive(inside, peer, theirs);
          sources[static_cast<std::size_t>(peer_place)] = theirs;
        });
        part = elements(combined_.at(sums++), 0, chunk(target).size(), part_bytes());
        work(inside, LocalWork::Kind::combine_part, part, std::move(sources));
      }
      if (target == shape_.rank) {
        own_part = part;
      } else {
        send(between, target, part);
      }
    }
  // What the other machines have for this rank.
  std::vector<Slice> sources(machines_.size(), own_part);
  row = 0;
  for_each_other_machine([&](int machine) {
    const Slice theirs = elements(between_.at(row++), 0, chunk(shape_.rank).size(), part_bytes());
    receive(between, member(machine, place_ % members_of(machine)), theirs);
    sources[static_cast<std::size_t>(machine)] = theirs;
  });
  work(between, last_work(), slice(Region::output, 0, chunk(shape_.rank)), std::move(sources));
}

// ---- broadcast: the root gives each machine elsewhere its part, the machines exchange the parts

void Builder::broadcast() {
  const bool is_root = shape_.rank == shape_.root;
  const std::int64_t count = (is_root ? shape_.input_counts : shape_.output_counts)[0];
  const std::int64_t size = shared_piece();
  for (std::int64_t number = 0; number * size < count; ++number)
    broadcast_piece(number, piece_of(count, size, number));
}

void Builder::broadcast_piece(std::int64_t number, const Chunk& piece) {
  const bool is_root = shape_.rank == shape_.root;
  int home = 0;
  while (std::ranges::find(members(home), shape_.root) == members(home).end()) ++home;
  const Region region = is_root ? Region::input : Region::output;
  step(number, 2);  // makes all three
  if (machine_ == home) {
    if (is_root) {
      for_each_local_peer(
          [&](int, int peer) { send(step(number, 0), peer, slice(region, 0, piece)); });
    } else {
      receive(step(number, 0), shape_.root, slice(region, 0, piece));
    }
  }
  // Each machine elsewhere gets a part from the root, each of its ranks a share of the part.
  int order = 0;
  for (int machine = 0; machine < machines(); ++machine) {
    if (machine == home) continue;
    const Chunk part = shifted(chunk_of(piece.size(), machines() - 1, order++), piece.begin);
    for (int place = 0; place < members_of(machine); ++place) {
      const Slice share =
          slice(region, 0, shifted(chunk_of(part.size(), members_of(machine), place), part.begin));
      const int first = member(machine, place);
      if (is_root) send(step(number, 0), first, share);
      if (machine_ == home) continue;
      if (first == shape_.rank) {
        receive(step(number, 0), shape_.root, share);
        for_each_other_machine([&](int other) {
          if (other != home) send(step(number, 1), member(other, place % members_of(other)), share);
        });
      }
      const int holder = member(machine_, machine == machine_ ? place : place % local_size());
      if (holder != shape_.rank) {
        receive(step(number, 2), holder, share);
        continue;
      }
      if (machine != machine_) receive(step(number, 1), first, share);
      for_each_local_peer([&](int, int peer) { send(step(number, 2), peer, share); });
    }
  }
}

}  // namespace

Schedule hierarchical_schedule(const CollectiveShape& shape) {
  return Builder(shape).make();
}

}  // namespace dtrun::collectives
