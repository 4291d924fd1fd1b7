#include "mesh/joint_group.h"

#include <algorithm>

#include "dtrun/base/error.h"
#include "dtrun/collectives/default_group.h"
#include "dtrun/dtensor/layout/rank_places.h"
#include "mesh/mesh_body.h"
#include "mesh/planned_group.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

void check_slices(const DeviceMesh& one, const DeviceMesh& other, std::size_t ranks_of_both) {
  const MeshBody &a = *one.body(), &b = *other.body();
  const auto is_slice = [](const MeshBody& mesh) {
    return mesh.ranks.size() < mesh.root->ranks.size();
  };
  const bool are_same_ranks = a.ranks.size() == ranks_of_both && b.ranks.size() == ranks_of_both;
  if (a.root != b.root || are_same_ranks || (!is_slice(a) && !is_slice(b))) return;
  throw Error(ErrorCode::kInvalidArgument,
              "nothing can go from " + one.to_string() + " to " + other.to_string(),
              "they are slices of one mesh with other ranks, and other ranks see other slices",
              "make a mesh of its ranks, which all ranks give alike: DeviceMesh(\"cpu\", {0, 1})");
}

bool has_all(const ProcessGroup& group, const std::vector<int>& ranks) {
  const RankPlaces known(group.global_ranks());
  return std::ranges::all_of(ranks, [&](int rank) { return known.of(rank) >= 0; });
}

const ProcessGroup* parent_of_all(const std::vector<int>& ranks, const DeviceMesh& a,
                                  const DeviceMesh& b) {
  for (const DeviceMesh* const mesh : {&a, &b}) {
    if (has_all(mesh->body()->root->parent, ranks)) return &mesh->body()->root->parent;
  }
  if (!collectives::has_default_group()) return nullptr;
  const ProcessGroup& world = collectives::default_group();
  return has_all(world, ranks) ? &world : nullptr;
}

}  // namespace

int global_rank_in(const DeviceMesh& mesh) {
  const ProcessGroup& parent = mesh.body()->root->parent;
  return parent.global_ranks()[static_cast<std::size_t>(parent.rank())];
}

std::vector<int> ranks_of_both(const DeviceMesh& a, const DeviceMesh& b) {
  std::vector<int> all = a.ranks();
  const std::vector<int> more = b.ranks();
  all.insert(all.end(), more.begin(), more.end());
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

ProcessGroup joint_group(const DeviceMesh& a, const DeviceMesh& b) {
  const MeshRoot &one = *a.body()->root, &other = *b.body()->root;
  if (&one != &other && (is_planned(one.parent) || is_planned(other.parent))) {
    throw Error(ErrorCode::kInvalidArgument,
                "a move between " + a.to_string() + " and " + b.to_string() +
                    ", of which one is a planned_mesh()",
                "its ranks are not those of any other mesh", "slices of one planned_mesh()");
  }
  const std::vector<int> ranks = ranks_of_both(a, b);
  check_slices(a, b, ranks.size());
  const ProcessGroup* const parent = parent_of_all(ranks, a, b);
  if (parent == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "no group has the ranks of both " + a.to_string() + " and " + b.to_string(),
                "elements go from one mesh to another through a group that has all their ranks",
                "make both meshes of ranks of the default group, or of one group");
  }
  const RankPlaces known(parent->global_ranks());
  std::vector<int> members;
  for (const int rank : ranks) members.push_back(known.of(rank));
  return group_of_members(*parent, members, parent->name() + ".meshes");
}

}  // namespace dtrun::dtensor
