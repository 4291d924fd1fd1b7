#include "dtrun/dtensor/mesh/device_mesh.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/collectives/default_group.h"
#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/dtensor/plan/link_file.h"
#include "dtrun/tensor/cuda.h"
#include "layout/mesh_coordinate.h"
#include "mesh/mesh_body.h"
#include "mesh/planned_group.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

/// At least one axis, each of at least one rank, and as many ranks as `ranks`. @param whose "the
/// group has", "there are"
void check_shape(const std::vector<int>& shape, std::size_t ranks, const std::string& whose) {
  std::size_t product = 1;
  for (const int size : shape) {
    if (size < 1) {
      throw Error(ErrorCode::kInvalidArgument, "a mesh cannot have the shape " + tuple_text(shape),
                  "every axis has at least one rank", "sizes of 1 and more");
    }
    product *= static_cast<std::size_t>(size);
    // Wrong already; going on could overflow.
    if (product > ranks) break;
  }
  if (shape.empty() || shape.size() > Layout::kMaxAxes) {
    throw Error(
        ErrorCode::kInvalidArgument, "a mesh cannot have " + std::to_string(shape.size()) + " axes",
        "it has 1 to " + std::to_string(Layout::kMaxAxes), "one axis for what goes together");
  }
  if (product != ranks) {
    throw Error(ErrorCode::kInvalidArgument,
                "a mesh of shape " + tuple_text(shape) + " does not fit its ranks",
                whose + " " + std::to_string(ranks) + " ranks",
                "give axis sizes whose product is " + std::to_string(ranks));
  }
}

void check_ranks(const ProcessGroup& group, const std::vector<int>& ranks) {
  std::vector<bool> seen(static_cast<std::size_t>(group.size()));
  for (const int rank : ranks) {
    if (rank < 0 || rank >= group.size()) {
      throw Error(
          ErrorCode::kInvalidArgument, "a mesh cannot have the rank " + std::to_string(rank),
          "the group " + group.name() + " has the ranks 0 to " + std::to_string(group.size() - 1),
          "start more ranks, or leave it out");
    }
    if (seen[static_cast<std::size_t>(rank)]) {
      throw Error(ErrorCode::kInvalidArgument,
                  "rank " + std::to_string(rank) + " stands twice in a mesh", "",
                  "give each rank one place");
    }
    seen[static_cast<std::size_t>(rank)] = true;
  }
}

/// All lines of ranks along the axis, each a list of ranks of the parent.
std::vector<std::vector<int>> lines_along(const std::vector<int>& ranks, const MeshAxis& axis) {
  const std::vector<int> steps = axis.places();
  std::vector<std::vector<int>> lines;
  for (int first = 0; first < static_cast<int>(ranks.size()); ++first) {
    if (axis.part_of(first) != 0) continue;
    std::vector<int>& line = lines.emplace_back();
    for (const int step : steps) line.push_back(ranks[static_cast<std::size_t>(first + step)]);
  }
  return lines;
}

/// Makes the groups of all lines. Collective over the parent.
void make_groups(MeshBody& mesh) {
  const ProcessGroup& parent = mesh.root->parent;
  std::vector<int> all(static_cast<std::size_t>(parent.size()));
  std::iota(all.begin(), all.end(), 0);
  for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
    // All ranks split by all lines in the same order, also those of lines that they are not in: the
    // split is collective over the parent.
    const auto lines = lines_along(mesh.root->ranks, mesh.axes[a]);
    if (lines.size() == 1 && lines.front() == all) continue;  // the parent itself
    const std::string axis = mesh.names.empty() ? "axis" + std::to_string(a) : mesh.names[a];
    ProcessGroup group = parent.shared_split(lines, parent.name() + "." + axis);
    if (group.valid()) mesh.lines[a] = std::make_shared<MeshLine>(std::move(group));
  }
  if (mesh.axes.size() == 1) mesh.whole = mesh.lines.front();
}

std::shared_ptr<MeshBody> new_mesh(ProcessGroup parent, std::vector<int> ranks,
                                   const std::vector<int>& shape, std::vector<std::string> names,
                                   tensors::DeviceType device_type) {
  check_axis_names(shape, names);
  auto root = std::make_shared<MeshRoot>();
  const auto own = std::ranges::find(ranks, parent.rank());
  root->own_place = own == ranks.end() ? -1 : static_cast<int>(own - ranks.begin());
  root->parent = std::move(parent);
  root->ranks = std::move(ranks);
  std::shared_ptr<MeshBody> mesh =
      make_mesh_body(std::move(root), axes_of(shape), std::move(names), device_type);
  take_links(mesh->root->parent.cost_table(), mesh->names, LinkKeys::all, mesh->links);
  return mesh;
}

tensors::DeviceType default_device_type(const ProcessGroup& group) {
  return group.serves(tensors::DeviceType::cuda) ? tensors::DeviceType::cuda
                                                 : tensors::DeviceType::cpu;
}

/// The rank in the group of each global rank.
std::vector<int> ranks_in(const ProcessGroup& group, const std::vector<int>& global_ranks) {
  std::vector<int> ranks;
  for (const int global : global_ranks) {
    const auto found = std::ranges::find(group.global_ranks(), global);
    ranks.push_back(found == group.global_ranks().end()
                        ? -1
                        : static_cast<int>(found - group.global_ranks().begin()));
  }
  return ranks;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "[" : ", ") + std::to_string(rank);
  return text + "]";
}

}  // namespace

DeviceMesh::DeviceMesh(ProcessGroup group, std::vector<int> shape,
                       std::vector<std::string> axis_names, tensors::DeviceType device_type) {
  if (!group.valid()) {
    throw Error(ErrorCode::kInvalidArgument, "a mesh cannot be made from no group",
                "this rank is no member of the group", "make the mesh on the group's ranks only");
  }
  const auto size = static_cast<std::size_t>(group.size());
  check_shape(shape, size, "the group has");
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  body_ = new_mesh(std::move(group), std::move(ranks), shape, std::move(axis_names), device_type);
  make_groups(*body_);
}

DeviceMesh::DeviceMesh(const RankGrid& physical_mesh_id, std::vector<int> mesh_shape,
                       MeshOptions options) {
  const ProcessGroup& world = collectives::default_group();
  check_shape(mesh_shape, physical_mesh_id.ranks().size(), "there are");
  check_ranks(world, physical_mesh_id.ranks());
  body_ = new_mesh(world, physical_mesh_id.ranks(), mesh_shape, std::move(options.axis_names),
                   options.device_type.value_or(default_device_type(world)));
  if (options.init_process_group) make_groups(*body_);
}

DeviceMesh DeviceMesh::from_group(ProcessGroup group, const std::string& device_type,
                                  std::vector<std::string> mesh_dim_names) {
  std::vector<int> shape;
  if (group.valid()) shape.push_back(group.size());
  return {std::move(group), std::move(shape), std::move(mesh_dim_names),
          tensors::Device::parse(device_type).type};
}

DeviceMesh DeviceMesh::from_groups(std::vector<ProcessGroup> groups, const std::string& device_type,
                                   const RankGrid& mesh, std::vector<std::string> mesh_dim_names) {
  const ProcessGroup& world = collectives::default_group();
  check_shape(mesh.shape(), mesh.ranks().size(), "there are");
  std::vector<int> ranks = ranks_in(world, mesh.ranks());
  check_ranks(world, ranks);
  if (groups.size() != mesh.shape().size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "a mesh of " + std::to_string(mesh.shape().size()) + " axes cannot be made from " +
                    std::to_string(groups.size()) + " groups",
                "", "give one group per axis");
  }
  const auto body = new_mesh(world, std::move(ranks), mesh.shape(), std::move(mesh_dim_names),
                             tensors::Device::parse(device_type).type);
  if (body->rank < 0) return DeviceMesh(body);
  for (std::size_t a = 0; a < groups.size(); ++a) {
    const int first = body->root->own_place - body->axes[a].part_of(body->root->own_place);
    std::vector<int> line;
    for (const int step : body->axes[a].places()) {
      line.push_back(mesh.ranks()[static_cast<std::size_t>(first + step)]);
    }
    if (!groups[a].valid() || groups[a].global_ranks() != line) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "group " + groups[a].to_string() + " is not axis " + std::to_string(a) + " of the mesh",
          "this rank's line of that axis is " + ranks_text(line),
          "give the groups in the order of the axes");
    }
    body->lines[a] = std::make_shared<MeshLine>(groups[a]);
  }
  if (groups.size() == 1) body->whole = body->lines.front();
  return DeviceMesh(body);
}

const std::vector<int>& DeviceMesh::shape() const {
  return body_->shape;
}
int DeviceMesh::ndim() const {
  return static_cast<int>(body_->shape.size());
}
int DeviceMesh::size() const {
  return static_cast<int>(body_->ranks.size());
}
int DeviceMesh::size(int axis) const {
  return body_->shape.at(static_cast<std::size_t>(axis));
}
const std::vector<std::string>& DeviceMesh::axis_names() const {
  return body_->names;
}
tensors::DeviceType DeviceMesh::device_type() const {
  return body_->device_type;
}
tensors::Device DeviceMesh::device() const {
  tensors::Device device{device_type(), 0};
  if (!device.is_cpu()) device.index = tensors::cuda::current_device();
  return device;
}
const std::vector<int>& DeviceMesh::coordinate() const {
  return body_->coordinate;
}
int DeviceMesh::rank() const {
  return body_->rank;
}
const ProcessGroup& DeviceMesh::group() const {
  return body_->whole->group();
}

int DeviceMesh::axis_index(const std::string& name) const {
  const auto found = std::ranges::find(body_->names, name);
  if (found != body_->names.end()) return static_cast<int>(found - body_->names.begin());
  std::string names;
  for (const std::string& known : body_->names) names += (names.empty() ? "" : ", ") + known;
  throw Error(ErrorCode::kInvalidArgument, "the mesh has no axis '" + name + "'",
              names.empty() ? "its axes have no names" : "its axes are " + names,
              names.empty() ? "axis_names when the mesh is made, or the axis by its number"
                            : "one of these names");
}

std::vector<int> DeviceMesh::ranks() const {
  const std::vector<int>& global = body_->root->parent.global_ranks();
  std::vector<int> ranks;
  for (const int rank : body_->ranks) ranks.push_back(global[static_cast<std::size_t>(rank)]);
  return ranks;
}

int DeviceMesh::local_rank(int axis) const {
  if (has_this_rank()) return coordinate().at(static_cast<std::size_t>(axis));
  throw Error(ErrorCode::kUsage, "this rank has no coordinate on " + to_string(),
              "it is outside of the mesh", "ask has_this_rank() first");
}

std::vector<int> DeviceMesh::coordinate_of(int rank) const {
  if (rank < 0 || rank >= size()) {
    throw Error(ErrorCode::kInvalidArgument, "the mesh has no rank " + std::to_string(rank),
                "it has " + std::to_string(size()) + " ranks",
                "a rank from 0 to " + std::to_string(size() - 1));
  }
  return coordinate_in(body_->shape, rank);
}

const ProcessGroup& DeviceMesh::group(int axis) const {
  if (axis < 0 || axis >= ndim()) {
    throw Error(ErrorCode::kInvalidArgument, "the mesh has no axis " + std::to_string(axis),
                "it has " + std::to_string(ndim()) + " axes",
                "an axis from 0 to " + std::to_string(ndim() - 1));
  }
  return body_->lines[static_cast<std::size_t>(axis)]->group();
}

std::vector<ProcessGroup> DeviceMesh::all_groups() const {
  std::vector<ProcessGroup> groups;
  for (const std::shared_ptr<MeshLine>& line : body_->lines) groups.push_back(line->group());
  return groups;
}

const std::vector<LinkRate>& DeviceMesh::links() const {
  return body_->links;
}

void DeviceMesh::set_links(std::vector<LinkRate> links) const {
  const bool are_positive = std::ranges::all_of(
      links, [](const LinkRate& link) { return link.latency > 0 && link.bytes_per_second > 0; });
  if (links.size() != body_->shape.size() || !are_positive) {
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(links.size()) + " links do not fit " + to_string(),
                "each axis has one, of a latency and a rate above 0", "read_links() reads a file");
  }
  const std::lock_guard lock(body_->mutex);
  body_->links = std::move(links);
  ++body_->links_set;
  // Plans that were made for the old rates may not be the cheapest any more.
  body_->plans.clear();
  if (body_->attachment) body_->attachment->forget_specs();
}

std::string DeviceMesh::to_string() const {
  if (!body_) return "DeviceMesh()";
  std::string sizes, strides;
  for (std::size_t a = 0; a < body_->axes.size(); ++a) {
    const char* const comma = a == 0 ? "" : ", ";
    if (!body_->names.empty()) {
      sizes += comma + body_->names[a] + "=" + std::to_string(body_->shape[a]);
    }
    strides += comma + body_->axes[a].stride_text();
  }
  if (body_->axes.size() == 1) strides += ",";
  sizes = body_->names.empty() ? tuple_text(body_->shape) : "(" + sizes + ")";
  const char* const type = body_->device_type == tensors::DeviceType::cpu ? "cpu" : "cuda";
  return "DeviceMesh(" + sizes + ", '" + type + "', stride=(" + strides + "))";
}

bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
  if (a.body_ == b.body_) return true;
  if (!a.body_ || !b.body_) return false;
  // ranks() are global, which takes a list. Of one group the places say the same.
  const MeshBody &one = *a.body_, &other = *b.body_;
  if (one.shape != other.shape || one.device_type != other.device_type) return false;
  if (one.root->parent == other.root->parent && one.ranks != other.ranks) return false;
  // Their ranks are numbered alike, and are none of a job's.
  if (one.root->parent != other.root->parent &&
      (is_planned(one.root->parent) || is_planned(other.root->parent)))
    return false;
  return one.names == other.names && a.ranks() == b.ranks();
}

}  // namespace dtrun::dtensor
