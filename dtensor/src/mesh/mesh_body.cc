#include "mesh/mesh_body.h"

#include <algorithm>
#include <utility>

#include "dtrun/base/error.h"
#include "layout/mesh_coordinate.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;

std::string tuple_text(const std::vector<int>& numbers) {
  std::string text = "(";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  }
  return text + (numbers.size() == 1 ? ",)" : ")");
}

void check_axis_names(const std::vector<int>& shape, const std::vector<std::string>& names) {
  if (names.empty()) return;
  if (names.size() != shape.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "a mesh of shape " + tuple_text(shape) + " cannot have " +
                    std::to_string(names.size()) + " axis names",
                "", "give one name per axis, or none at all");
  }
  std::vector<std::string> sorted = names;
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end() || sorted.front().empty()) {
    const std::string name = twice != sorted.end() ? *twice : sorted.front();
    throw Error(ErrorCode::kInvalidArgument, "'" + name + "' cannot name an axis of this mesh",
                "names are not empty, and no two axes share one", "another name");
  }
}

namespace {

/// The ranks of the parent at those offsets of the root's grid.
std::vector<int> ranks_at(const MeshRoot& root, int first, const std::vector<int>& places) {
  std::vector<int> ranks;
  for (const int place : places) {
    ranks.push_back(root.ranks[static_cast<std::size_t>(first + place)]);
  }
  return ranks;
}

std::string axis_name(const MeshBody& mesh, std::size_t axis) {
  return mesh.names.empty() ? "axis" + std::to_string(axis) : mesh.names[axis];
}

std::shared_ptr<MeshLine> line_of(const MeshRoot& root, std::vector<int> ranks,
                                  const std::string& name) {
  if (root.own_place < 0) ranks.clear();
  return std::make_shared<MeshLine>(root.parent, std::move(ranks), root.parent.name() + "." + name);
}

/// Whether every line along the axis lies on one machine.
/// @param machines of each rank of the root's parent; empty: not known
bool stays_on_machines(const MeshRoot& root, const std::vector<int>& machines,
                       const MeshAxis& axis) {
  if (machines.empty()) return true;
  const std::vector<int> steps = axis.places();
  for (int first = 0; first < static_cast<int>(root.ranks.size()); ++first) {
    if (axis.part_of(first) != 0) continue;
    const std::vector<int> line = ranks_at(root, first, steps);
    const auto machine_of = [&](int rank) { return machines[static_cast<std::size_t>(rank)]; };
    const int machine = machine_of(line.front());
    if (!std::ranges::all_of(line, [&](int rank) { return machine_of(rank) == machine; }))
      return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<MeshBody> make_mesh_body(std::shared_ptr<MeshRoot> root, std::vector<MeshAxis> axes,
                                         std::vector<std::string> names,
                                         tensors::DeviceType device_type) {
  auto body = std::make_shared<MeshBody>();
  MeshBody& mesh = *body;
  mesh.root = std::move(root);
  mesh.axes = std::move(axes);
  mesh.names = std::move(names);
  mesh.device_type = device_type;
  for (const MeshAxis& axis : mesh.axes) mesh.shape.push_back(axis.size());
  const MeshRoot& all = *mesh.root;
  const std::vector<int> places = places_of(mesh.axes);
  if (all.own_place >= 0) {
    mesh.first_place = all.own_place;
    for (const MeshAxis& axis : mesh.axes) mesh.first_place -= axis.part_of(all.own_place);
    const auto own = std::ranges::find(places, all.own_place - mesh.first_place);
    mesh.rank = static_cast<int>(own - places.begin());
    mesh.coordinate = coordinate_in(mesh.shape, mesh.rank);
  }
  mesh.ranks = ranks_at(all, mesh.first_place, places);
  std::string joined_names;
  for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
    const int start = all.own_place < 0 ? 0 : all.own_place - mesh.axes[a].part_of(all.own_place);
    const std::string name = axis_name(mesh, a);
    mesh.lines.push_back(line_of(all, ranks_at(all, start, mesh.axes[a].places()), name));
    joined_names += (a == 0 ? "" : "_") + name;
  }
  mesh.whole = mesh.axes.size() == 1 ? mesh.lines.front() : line_of(all, mesh.ranks, joined_names);
  const LinkRate within = device_type == tensors::DeviceType::cpu ? kSharedMemoryLink : kDeviceLink;
  const std::vector<int> machines = all.parent.machines();
  for (const MeshAxis& axis : mesh.axes)
    mesh.links.push_back(stays_on_machines(all, machines, axis) ? within : kNetworkLink);
  return body;
}

const ProcessGroup& group_along(MeshBody& mesh, const std::vector<int>& axes) {
  if (axes.size() == 1) return mesh.lines[static_cast<std::size_t>(axes.front())]->group();
  std::vector<MeshAxis> spanned;
  std::string name;
  unsigned key = 0;
  int start = mesh.root->own_place;
  std::size_t ranks = 1;
  for (const int axis : axes) {
    const auto a = static_cast<std::size_t>(axis);
    spanned.push_back(mesh.axes[a]);
    name += (name.empty() ? "" : "_") + axis_name(mesh, a);
    key |= 1U << a;
    start -= mesh.axes[a].part_of(mesh.root->own_place);
    ranks *= static_cast<std::size_t>(mesh.shape[a]);
  }
  if (ranks == mesh.ranks.size()) return mesh.whole->group();
  std::shared_ptr<MeshLine> plane;
  {
    const std::lock_guard lock(mesh.mutex);
    std::shared_ptr<MeshLine>& known = mesh.planes[key];
    if (!known) known = line_of(*mesh.root, ranks_at(*mesh.root, start, places_of(spanned)), name);
    plane = known;
  }
  return plane->group();
}

}  // namespace dtrun::dtensor
