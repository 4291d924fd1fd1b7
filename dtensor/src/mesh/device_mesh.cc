#include "dtrun/dtensor/mesh/device_mesh.h"

#include <algorithm>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/layout/layout.h"
#include "mesh/mesh_body.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

/// A Python tuple: "(2,)", "(2, 1)".
std::string tuple_text(const std::vector<int>& numbers) {
  std::string text = "(";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  }
  return text + (numbers.size() == 1 ? ",)" : ")");
}

std::vector<int> strides_of(const std::vector<int>& shape) {
  std::vector<int> strides(shape.size(), 1);
  for (std::size_t a = shape.size(); a-- > 1;) strides[a - 1] = strides[a] * shape[a];
  return strides;
}

std::vector<int> coordinate_in(const std::vector<int>& shape, int rank) {
  std::vector<int> coordinate(shape.size());
  for (std::size_t a = shape.size(); a-- > 0;) {
    coordinate[a] = rank % shape[a];
    rank /= shape[a];
  }
  return coordinate;
}

void check_shape(const ProcessGroup& group, const std::vector<int>& shape) {
  std::int64_t ranks = 1;
  for (const int size : shape) {
    if (size < 1) {
      throw Error(ErrorCode::kInvalidArgument, "a mesh cannot have the shape " + tuple_text(shape),
                  "every axis has at least one rank", "");
    }
    ranks *= size;
    if (ranks > group.size()) break;
  }
  if (shape.empty() || shape.size() > Layout::kMaxAxes) {
    throw Error(ErrorCode::kInvalidArgument,
                "a mesh cannot have " + std::to_string(shape.size()) + " axes",
                "it has 1 to " + std::to_string(Layout::kMaxAxes), "");
  }
  if (ranks != group.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "a mesh of shape " + tuple_text(shape) + " does not fit the group " + group.name(),
                "the group has " + std::to_string(group.size()) + " ranks",
                "give axis sizes whose product is " + std::to_string(group.size()));
  }
}

void check_names(const std::vector<int>& shape, const std::vector<std::string>& names) {
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
                "names are not empty, and no two axes share one", "");
  }
}

/// All lines along the axis, each a list of group ranks.
std::vector<std::vector<int>> lines_along(const std::vector<int>& shape, std::size_t axis,
                                          int ranks) {
  const int stride = strides_of(shape)[axis];
  std::vector<std::vector<int>> lines;
  for (int first = 0; first < ranks; ++first) {
    if (coordinate_in(shape, first)[axis] != 0) continue;
    std::vector<int>& line = lines.emplace_back();
    for (int i = 0; i < shape[axis]; ++i) line.push_back(first + i * stride);
  }
  return lines;
}

}  // namespace

DeviceMesh::DeviceMesh(ProcessGroup group, std::vector<int> shape,
                       std::vector<std::string> axis_names, tensors::DeviceType device_type) {
  if (!group.valid()) {
    throw Error(ErrorCode::kInvalidArgument, "a mesh cannot be made from no group",
                "this rank is no member of the group", "make the mesh on the group's ranks only");
  }
  check_shape(group, shape);
  check_names(shape, axis_names);
  std::vector<ProcessGroup> axis_groups;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == group.size()) {
      axis_groups.push_back(group);
      continue;
    }
    const std::string name = axis_names.empty() ? "axis" + std::to_string(axis) : axis_names[axis];
    axis_groups.push_back(
        group.split(lines_along(shape, axis, group.size()), group.name() + "." + name));
  }
  body_ = std::make_shared<MeshBody>();
  body_->coordinate = coordinate_in(shape, group.rank());
  body_->group = std::move(group);
  body_->shape = std::move(shape);
  body_->names = std::move(axis_names);
  body_->device_type = device_type;
  body_->axis_groups = std::move(axis_groups);
  const bool on_cpu = device_type == tensors::DeviceType::cpu;
  body_->links.assign(body_->shape.size(), on_cpu ? kSharedMemoryLink : kDeviceLink);
}

const std::vector<int>& DeviceMesh::shape() const {
  return body_->shape;
}
int DeviceMesh::ndim() const {
  return static_cast<int>(body_->shape.size());
}
int DeviceMesh::size() const {
  return body_->group.size();
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
const std::vector<int>& DeviceMesh::coordinate() const {
  return body_->coordinate;
}
int DeviceMesh::rank() const {
  return body_->group.rank();
}
const ProcessGroup& DeviceMesh::group() const {
  return body_->group;
}

int DeviceMesh::axis_index(const std::string& name) const {
  const auto found = std::ranges::find(body_->names, name);
  if (found != body_->names.end()) return static_cast<int>(found - body_->names.begin());
  std::string names;
  for (const std::string& known : body_->names) names += (names.empty() ? "" : ", ") + known;
  throw Error(ErrorCode::kInvalidArgument, "the mesh has no axis '" + name + "'",
              names.empty() ? "its axes have no names" : "its axes are " + names, "");
}

std::vector<int> DeviceMesh::coordinate_of(int rank) const {
  if (rank < 0 || rank >= size()) {
    throw Error(ErrorCode::kInvalidArgument, "the mesh has no rank " + std::to_string(rank),
                "it has " + std::to_string(size()) + " ranks", "");
  }
  return coordinate_in(body_->shape, rank);
}

const ProcessGroup& DeviceMesh::group(int axis) const {
  if (axis < 0 || axis >= ndim()) {
    throw Error(ErrorCode::kInvalidArgument, "the mesh has no axis " + std::to_string(axis),
                "it has " + std::to_string(ndim()) + " axes", "");
  }
  return body_->axis_groups[static_cast<std::size_t>(axis)];
}

std::string DeviceMesh::to_string() const {
  if (!body_) return "DeviceMesh()";
  std::string sizes;
  for (std::size_t a = 0; a < body_->names.size(); ++a) {
    sizes += (a == 0 ? "(" : ", ") + body_->names[a] + "=" + std::to_string(body_->shape[a]);
  }
  sizes = body_->names.empty() ? tuple_text(body_->shape) : sizes + ")";
  const char* const type = body_->device_type == tensors::DeviceType::cpu ? "cpu" : "cuda";
  return "DeviceMesh(" + sizes + ", '" + type +
         "', stride=" + tuple_text(strides_of(body_->shape)) + ")";
}

bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
  if (a.body_ == b.body_) return true;
  if (!a.body_ || !b.body_) return false;
  return a.body_->shape == b.body_->shape && a.body_->names == b.body_->names &&
         a.body_->device_type == b.body_->device_type &&
         a.body_->group.global_ranks() == b.body_->group.global_ranks();
}

}  // namespace dtrun::dtensor
