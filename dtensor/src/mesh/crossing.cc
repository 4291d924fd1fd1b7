#include "mesh/crossing.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "dtrun/tensor/ops.h"
#include "mesh/joint_group.h"
#include "mesh/mesh_body.h"

namespace dtrun::dtensor {
namespace {

std::int64_t item_bytes(const Spec& spec) {
  return static_cast<std::int64_t>(tensors::item_size(spec.dtype()));
}

Box box_on(const DeviceMesh& mesh, const tensors::Shape& shape, const Layout& layout) {
  if (mesh.has_this_rank()) return local_box(shape, mesh.shape(), mesh.coordinate(), layout);
  return {shape, tensors::Shape(shape.size(), 0)};
}

/// FNV-1a.
class Digest {
 public:
  void add(std::int64_t number) {
    for (int byte = 0; byte < 8; ++byte)
      value_ = (value_ ^ (static_cast<std::uint64_t>(number) >> 8 * byte & 0xff)) * 0x100000001b3;
  }
  void add(const Spec& spec) {
    const DeviceMesh& mesh = spec.body()->mesh();
    for (const std::int64_t size : spec.shape()) add(size);
    add(static_cast<std::int64_t>(spec.dtype()));
    for (const int size : mesh.shape()) add(size);
    for (const int rank : mesh.ranks()) add(rank);
    // The numbers of ragged cuts differ between ranks, so their sizes are hashed instead.
    for (const char letter : spec.layout().to_string()) add(letter);
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

/// What `own` sends, receives and keeps of `messages`. @param ranks of the group, ascending
void add_parcels(std::vector<BoxMessage> messages, const std::vector<int>& ranks, int own,
                 Crossing& crossing) {
  const auto size = static_cast<int>(ranks.size());
  const auto place_of = [&](int rank) {
    return static_cast<int>(std::ranges::lower_bound(ranks, rank) - ranks.begin());
  };
  const auto peer_of = [own](const BoxMessage& message) {
    return message.from == own ? message.to : message.from;
  };
  const int own_place = place_of(own);
  std::ranges::sort(messages, {}, [&](const BoxMessage& message) {
    return (place_of(peer_of(message)) - own_place + size) % size;
  });
  for (const BoxMessage& message : messages) {
    if (message.from == message.to) {
      crossing.kept.push_back(message.box);
      continue;
    }
    Crossing::Parcels& parcels = message.from == own ? crossing.sent : crossing.received;
    parcels.peers.push_back(place_of(peer_of(message)));
    parcels.boxes.push_back(message.box);
  }
  const auto is_all = [](const Crossing::Parcels& parcels, const Box& whole) {
    return parcels.boxes.size() == 1 && parcels.boxes.front() == whole;
  };
  crossing.sent.is_whole = is_all(crossing.sent, crossing.given);
  crossing.received.is_whole = is_all(crossing.received, crossing.wanted);
  const auto is_one_at_most = [](const Crossing::Parcels& parcels) {
    return parcels.is_whole || parcels.peers.empty();
  };
  crossing.is_plain =
      crossing.kept.empty() && is_one_at_most(crossing.sent) && is_one_at_most(crossing.received);
}

Crossing made(const Spec& from, const Spec& to) {
  const DeviceMesh &source = from.body()->mesh(), &target = to.body()->mesh();
  Crossing crossing;
  crossing.plan = plan_across(from, to);
  crossing.given = box_on(source, from.shape(), crossing.plan.given);
  crossing.wanted = box_on(target, from.shape(), crossing.plan.wanted);
  const BoxMessages messages(from.shape(), placed(source, crossing.plan.given),
                             placed(target, crossing.plan.wanted));
  add_parcels(messages.of_rank(global_rank_in(source)), ranks_of_both(source, target),
              global_rank_in(source), crossing);
  if (!messages.are_none()) crossing.group = joint_group(source, target);
  const bool goes_over_host = source.device_type() != target.device_type();
  crossing.is_messages_only =
      crossing.plan.before.empty() && crossing.plan.after.empty() && !goes_over_host;
  crossing.dtype = from.dtype();
  Digest digest;
  digest.add(from);
  digest.add(to);
  crossing.digest = digest.value();
  return crossing;
}

}  // namespace

PlacedLayout placed(const DeviceMesh& mesh, const Layout& layout) {
  return {mesh.shape(), mesh.ranks(), layout};
}

CrossMeshPlan plan_across(const Spec& from, const Spec& to) {
  const DeviceMesh &source = from.body()->mesh(), &target = to.body()->mesh();
  return plan_cross_mesh(from.shape(), placed(source, from.layout()), placed(target, to.layout()),
                         item_bytes(from), source.body()->links, target.body()->links);
}

std::shared_ptr<const Crossing> crossing_of(const Spec& from, const Spec& to) {
  MeshBody& body = *from.body()->mesh().body();
  const std::shared_ptr<MeshBody>& target = to.body()->mesh().body();
  {
    const std::lock_guard lock(body.mutex);
    if (auto known = body.plans.crossing(from.body(), target, to.layout())) return known;
  }
  auto crossing = std::make_shared<const Crossing>(made(from, to));
  const std::lock_guard lock(body.mutex);
  body.plans.note_crossing(from.body(), target, to.layout(), crossing);
  return crossing;
}

}  // namespace dtrun::dtensor
