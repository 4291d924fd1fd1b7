// Meshes made of another mesh's axes.
#include <algorithm>
#include <optional>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/dtensor/plan/link_file.h"
#include "mesh/mesh_body.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

struct NamedAxis {
  std::string name;
  MeshAxis axis;
  std::optional<LinkRate> link = {};  ///< none: of an axis that another one was split into
};

void check_overlap(const DeviceMesh& mesh, const std::vector<NamedAxis>& axes,
                   const std::vector<MeshAxis>& bare) {
  std::vector<int> places = places_of(bare);
  std::ranges::sort(places);
  if (std::ranges::adjacent_find(places) == places.end()) return;
  std::string names;
  for (const NamedAxis& axis : axes) names += (names.empty() ? "" : ", ") + axis.name;
  throw Error(ErrorCode::kInvalidArgument, "the axes " + names + " do not make a mesh together",
              "they overlap in " + mesh.to_string(), "name each axis once");
}

/// The key of a slice among the slices of its root.
std::string slice_key(const MeshBody& mesh) {
  std::string key = std::to_string(mesh.first_place);
  for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
    key += ";" + mesh.names[a] + "=" + std::to_string(mesh.shape[a]) + ":" +
           mesh.axes[a].stride_text();
    for (const int place : mesh.axes[a].places()) key += "," + std::to_string(place);
  }
  return key;
}

/// Of several axes as one, which is no faster than any of them; where the group's table names it,
/// that counts.
LinkRate joined_link(const DeviceMesh& mesh, const std::string& name,
                     const std::vector<NamedAxis>& axes) {
  LinkRate link = *axes.front().link;
  for (const NamedAxis& axis : axes) {
    link = {std::max(link.latency, axis.link->latency),
            std::min(link.bytes_per_second, axis.link->bytes_per_second)};
  }
  std::vector<LinkRate> links = {link};
  take_links(mesh.body()->root->parent.cost_table(), {name}, LinkKeys::own_name, links);
  return links.front();
}

void take_axis_links(MeshBody& slice, const std::vector<NamedAxis>& axes) {
  take_links(slice.root->parent.cost_table(), slice.names, LinkKeys::no_number, slice.links);
  for (std::size_t a = 0; a < axes.size(); ++a)
    if (axes[a].link) slice.links[a] = *axes[a].link;
}

/// A line that slice and mesh have in common is shared.
void take_lines(MeshBody& slice, const MeshBody& mesh) {
  for (std::size_t a = 0; a < slice.axes.size(); ++a) {
    const auto same = std::ranges::find(mesh.axes, slice.axes[a]);
    if (same == mesh.axes.end()) continue;
    const auto axis = static_cast<std::size_t>(same - mesh.axes.begin());
    slice.lines[a] = mesh.lines[axis];
  }
  if (slice.lines.size() == 1) slice.whole = slice.lines.front();
}

DeviceMesh slice_of(const DeviceMesh& mesh, const std::vector<NamedAxis>& axes) {
  std::vector<MeshAxis> bare;
  std::vector<std::string> names;
  for (const NamedAxis& axis : axes) {
    bare.push_back(axis.axis);
    names.push_back(axis.name);
  }
  check_overlap(mesh, axes, bare);
  const MeshBody& whole = *mesh.body();
  auto made = make_mesh_body(whole.root, std::move(bare), std::move(names), whole.device_type);
  check_axis_names(made->shape, made->names);
  take_axis_links(*made, axes);
  take_lines(*made, whole);
  const std::lock_guard lock(whole.root->mutex);
  // Weak: a slice that nobody holds goes. While somebody has it, the same slice is the same mesh,
  // and its groups exist once.
  std::weak_ptr<MeshBody>& known = whole.root->slices[slice_key(*made)];
  if (auto same = known.lock()) return DeviceMesh(std::move(same));
  known = made;
  return DeviceMesh(std::move(made));
}

NamedAxis axis_of(const DeviceMesh& mesh, const std::string& name) {
  const MeshBody& body = *mesh.body();
  if (std::ranges::find(body.names, name) == body.names.end()) {
    // A flattened axis is known to all slices of its root, as in PyTorch, so mesh["dp_tp"] finds
    // it.
    const std::lock_guard lock(body.root->mutex);
    const auto flattened = body.root->flattened.find(name);
    if (flattened != body.root->flattened.end())
      return {name, flattened->second.axis, flattened->second.link};
  }
  const auto index = static_cast<std::size_t>(mesh.axis_index(name));
  return {name, body.axes[index], body.links[index]};
}

void require_names(const DeviceMesh& mesh, const char* what) {
  if (!mesh.axis_names().empty()) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(what) + " of " + mesh.to_string() + ", whose axes have no names", "",
              "give the axes names when the mesh is made");
}

void remember(MeshRoot& root, const std::string& name, const FlattenedAxis& flat) {
  const std::lock_guard lock(root.mutex);
  const auto [known, is_new] = root.flattened.emplace(name, flat);
  if (is_new) return;
  if (known->second.axis == flat.axis) {
    known->second.link = flat.link;  // maybe set_links() has changed those of its parts
    return;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "'" + name + "' is the name of other axes that were flattened before", "",
              "choose another name");
}

}  // namespace

DeviceMesh DeviceMesh::operator[](const std::vector<std::string>& names) const {
  require_names(*this, "a slice");
  if (names == axis_names()) return *this;
  if (names.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "a slice of no axes of " + to_string(),
                "a mesh has one axis at least", "the name of an axis");
  }
  std::vector<NamedAxis> axes;
  for (const std::string& name : names) axes.push_back(axis_of(*this, name));
  return slice_of(*this, axes);
}

DeviceMesh DeviceMesh::flatten(const std::vector<std::string>& axes, std::string name) const {
  require_names(*this, "a flattened form");
  const std::vector<std::string>& names = axes.empty() ? axis_names() : axes;
  if (name.empty()) {
    for (const std::string& axis : names) name += (name.empty() ? "" : "_") + axis;
  }
  std::vector<NamedAxis> chosen;
  std::vector<MeshAxis> bare;
  for (const std::string& axis : names) {
    chosen.push_back(axis_of(*this, axis));
    bare.push_back(chosen.back().axis);
  }
  check_overlap(*this, chosen, bare);
  const MeshAxis joined = MeshAxis::joined(bare);
  const auto same_name = std::ranges::find(axis_names(), name);
  if (same_name != axis_names().end() && !(axis_of(*this, name).axis == joined)) {
    throw Error(ErrorCode::kInvalidArgument,
                "'" + name + "' is the name of an axis of " + to_string() + " already", "",
                "choose another name");
  }
  const LinkRate link = joined_link(*this, name, chosen);
  remember(*body_->root, name, {joined, link});
  return slice_of(*this, {{name, joined, link}});
}

DeviceMesh DeviceMesh::unflatten(const std::string& axis, const std::vector<int>& sizes,
                                 const std::vector<std::string>& names) const {
  require_names(*this, "an axis split");
  const auto where = static_cast<std::size_t>(axis_index(axis));
  const std::optional<std::vector<MeshAxis>> parts = body_->axes[where].split(sizes);
  if (!parts || sizes.empty() || sizes.size() != names.size() ||
      sizes.size() + axis_names().size() - 1 > Layout::kMaxAxes) {
    throw Error(ErrorCode::kInvalidArgument,
                "axis '" + axis + "' of " + to_string() + " cannot be split into " +
                    tuple_text(sizes) + " with " + std::to_string(names.size()) + " names",
                "it has " + std::to_string(body_->shape[where]) + " ranks",
                "give one name per size, and sizes whose product is that");
  }
  std::vector<NamedAxis> axes;
  for (std::size_t a = 0; a < body_->axes.size(); ++a) {
    if (a != where) {
      axes.push_back({axis_names()[a], body_->axes[a], body_->links[a]});
      continue;
    }
    for (std::size_t i = 0; i < parts->size(); ++i) axes.push_back({names[i], (*parts)[i]});
    if (parts->size() == 1) axes.back().link = body_->links[a];
  }
  return slice_of(*this, axes);
}

DeviceMesh DeviceMesh::concatenate(const std::vector<DeviceMesh>& meshes) {
  if (meshes.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "no meshes to concatenate", "", "give at least one");
  }
  std::vector<NamedAxis> axes;
  for (const DeviceMesh& mesh : meshes) {
    require_names(mesh, "a concatenation");
    if (mesh.body_->root != meshes.front().body_->root) {
      throw Error(
          ErrorCode::kInvalidArgument,
          mesh.to_string() + " and " + meshes.front().to_string() + " are not slices of one mesh",
          "", "slice one mesh, and concatenate its slices");
    }
    for (std::size_t a = 0; a < mesh.body_->axes.size(); ++a) {
      axes.push_back({mesh.axis_names()[a], mesh.body_->axes[a], mesh.body_->links[a]});
    }
  }
  return slice_of(meshes.front(), axes);
}

}  // namespace dtrun::dtensor
