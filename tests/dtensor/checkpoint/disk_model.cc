#include "dtensor/checkpoint/disk_model.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrun::dtensor::dcp {

DiskModel::DiskModel() : DiskModel(DiskImage{{"/disk", std::nullopt}}) {}

DiskModel::DiskModel(const DiskImage& image) {
  root_->is_folder = true;
  // A folder comes before what is in it.
  for (const auto& [path, content] : image) {
    const std::optional<Place> place = find(path);
    const auto node = std::make_shared<Node>();
    node->is_folder = !content;
    node->bytes = content.value_or("");
    node->synced_bytes = node->bytes.size();
    place->folder->names[place->name] = place->folder->synced_names[place->name] = node;
  }
}

int DiskModel::refuse(int error) {
  errno = error;
  return -1;
}

bool DiskModel::fails() {
  if (++calls_ != fails_at_) return false;
  errno = error_;
  return true;
}

bool DiskModel::changes() {
  if (before_change) before_change();
  return !fails();
}

std::optional<DiskModel::Place> DiskModel::find(const std::string& path) const {
  Place place{root_, "", root_};
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t begin = path.find_first_not_of('/', at);
    if (begin == std::string::npos) break;
    at = std::min(path.find('/', begin), path.size());
    if (place.node == nullptr || !place.node->is_folder) return std::nullopt;
    if (path.compare(begin, at - begin, ".") == 0) continue;
    place.folder = place.node;
    place.name = path.substr(begin, at - begin);
    const auto found = place.folder->names.find(place.name);
    place.node = found == place.folder->names.end() ? nullptr : found->second;
  }
  return place;
}

int DiskModel::open_node(const NodePointer& node) {
  open_[next_fd_] = node;
  return next_fd_++;
}

int DiskModel::create(const std::string& path) {
  const std::lock_guard guard(mutex_);
  if (!changes()) return -1;
  const std::optional<Place> place = find(path);
  if (!place) return refuse(ENOENT);
  if (place->node) return refuse(EEXIST);
  const auto node = std::make_shared<Node>();
  place->folder->names[place->name] = node;
  step(*place->folder);
  return open_node(node);
}

int DiskModel::open(const std::string& path) {
  const std::lock_guard guard(mutex_);
  if (fails()) return -1;
  const std::optional<Place> place = find(path);
  return place && place->node ? open_node(place->node) : refuse(ENOENT);
}

int DiskModel::open_folder(const std::string& path) {
  const std::lock_guard guard(mutex_);
  if (fails()) return -1;
  const std::optional<Place> place = find(path);
  if (!place || !place->node) return refuse(ENOENT);
  return place->node->is_folder ? open_node(place->node) : refuse(ENOTDIR);
}

bool DiskModel::fits(int fd, const void* bytes, std::size_t count, std::uint64_t offset) const {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes);
  return !direct_.contains(fd) || (address | count | offset) % kDirectBytes == 0;
}

ssize_t DiskModel::write(int fd, const void* bytes, std::size_t count) {
  const std::lock_guard guard(mutex_);
  if (!changes()) return -1;
  if (!fits(fd, bytes, count, open_.at(fd)->bytes.size())) return refuse(EINVAL);
  const std::size_t taken = std::min(count, most_);
  if (direct_.contains(fd)) bytes_written_directly_ += taken;
  open_.at(fd)->bytes.append(static_cast<const char*>(bytes), taken);
  return static_cast<ssize_t>(taken);
}

ssize_t DiskModel::read_at(int fd, void* bytes, std::size_t count, std::uint64_t offset) {
  const std::lock_guard guard(mutex_);
  if (fails()) return -1;
  if (!fits(fd, bytes, count, offset)) return refuse(EINVAL);
  const std::string& all = open_.at(fd)->bytes;
  if (offset >= all.size()) return 0;
  const std::size_t taken = std::min({count, most_, all.size() - offset});
  std::memcpy(bytes, all.data() + offset, taken);
  if (direct_.contains(fd)) bytes_read_directly_ += taken;
  return static_cast<ssize_t>(taken);
}

int DiskModel::direct(int fd, bool on) {
  const std::lock_guard guard(mutex_);
  if (fails()) return -1;
  if (!has_direct_) return refuse(EINVAL);
  if (on) {
    direct_.insert(fd);
  } else {
    direct_.erase(fd);
  }
  return 0;
}

int DiskModel::status(int fd, FileStatus& status) {
  const std::lock_guard guard(mutex_);
  if (fails()) return -1;
  const Node& node = *open_.at(fd);
  status = {node.is_folder ? FileKind::folder : FileKind::regular, node.bytes.size()};
  return 0;
}

int DiskModel::status(const std::string& path, FileStatus& status) {
  const std::lock_guard guard(mutex_);
  if (fails()) return -1;
  const std::optional<Place> place = find(path);
  if (!place || !place->node) return refuse(ENOENT);
  status = {place->node->is_folder ? FileKind::folder : FileKind::regular,
            place->node->bytes.size()};
  return 0;
}

int DiskModel::sync(int fd) {
  const std::lock_guard guard(mutex_);
  if (!changes()) return -1;
  Node& node = *open_.at(fd);
  node.synced_bytes = node.bytes.size();
  node.synced_names = node.names;
  node.steps.clear();
  return 0;
}

int DiskModel::close(int fd) {
  const std::lock_guard guard(mutex_);
  const bool has_failed = fails();
  open_.at(fd)->is_locked = false;
  open_.erase(fd);
  direct_.erase(fd);
  return has_failed ? -1 : 0;
}

int DiskModel::lock(int fd) {
  const std::lock_guard guard(mutex_);
  if (fails()) return -1;
  Node& node = *open_.at(fd);
  if (node.is_locked) return refuse(EWOULDBLOCK);
  node.is_locked = true;
  return 0;
}

int DiskModel::make_folder(const std::string& path) {
  const std::lock_guard guard(mutex_);
  if (!changes()) return -1;
  const std::optional<Place> place = find(path);
  if (!place) return refuse(ENOENT);
  if (place->node) return refuse(EEXIST);
  const auto node = std::make_shared<Node>();
  node->is_folder = true;
  place->folder->names[place->name] = node;
  step(*place->folder);
  return 0;
}

int DiskModel::rename(const std::string& from, const std::string& to) {
  const std::lock_guard guard(mutex_);
  if (!changes()) return -1;
  const std::optional<Place> source = find(from), target = find(to);
  if (!source || !source->node || !target) return refuse(ENOENT);
  if (target->node) return refuse(EEXIST);
  source->folder->names.erase(source->name);
  target->folder->names[target->name] = source->node;
  step(*source->folder);
  return 0;
}

int DiskModel::exchange(const std::string& a, const std::string& b) {
  const std::lock_guard guard(mutex_);
  if (!changes()) return -1;
  const std::optional<Place> one = find(a), other = find(b);
  if (!one || !one->node || !other || !other->node) return refuse(ENOENT);
  one->folder->names[one->name] = other->node;
  other->folder->names[other->name] = one->node;
  step(*one->folder);
  return 0;
}

int DiskModel::remove(const std::string& path) {
  const std::lock_guard guard(mutex_);
  if (!changes()) return -1;
  const std::optional<Place> place = find(path);
  if (!place || !place->node) return refuse(ENOENT);
  if (place->node->is_folder) return refuse(EISDIR);
  place->folder->names.erase(place->name);
  step(*place->folder);
  return 0;
}

int DiskModel::remove_folder(const std::string& path) {
  const std::lock_guard guard(mutex_);
  if (!changes()) return -1;
  const std::optional<Place> place = find(path);
  if (!place || !place->node) return refuse(ENOENT);
  if (!place->node->names.empty()) return refuse(ENOTEMPTY);
  place->folder->names.erase(place->name);
  step(*place->folder);
  return 0;
}

int DiskModel::list(const std::string& path, std::vector<std::string>& names) {
  const std::lock_guard guard(mutex_);
  if (fails()) return -1;
  const std::optional<Place> place = find(path);
  if (!place || !place->node) return refuse(ENOENT);
  for (const auto& [name, node] : place->node->names) names.push_back(name);
  return 0;
}

DiskImage DiskModel::seen() const {
  const std::lock_guard guard(mutex_);
  DiskImage image;
  const auto add = [&](const auto& self, const Node& folder, const std::string& path) -> void {
    for (const auto& [name, node] : folder.names) {
      const std::string own = path + "/" + name;
      image[own] = node->is_folder ? std::optional<std::string>() : node->bytes;
      self(self, *node, own);
    }
  };
  add(add, *root_, "");
  return image;
}

DiskImage DiskModel::after_cut(std::mt19937& random) const {
  const std::lock_guard guard(mutex_);
  DiskImage image;
  const auto below = [&](std::size_t count) { return random() % (count + 1); };
  const auto left_of = [&](const Node& file) {
    std::string bytes = file.bytes.substr(0, file.synced_bytes);
    const std::size_t more = below(file.bytes.size() - file.synced_bytes);
    // The file's length may be there before its bytes are.
    switch (random() % 3) {
      case 0:
        return bytes;
      case 1:
        return bytes + file.bytes.substr(file.synced_bytes, more);
      default:
        return bytes + std::string(more, '\0');
    }
  };
  const auto add = [&](const auto& self, const Node& folder, const std::string& path) -> void {
    const std::size_t reached = below(folder.steps.size());
    const auto& names = reached == 0 ? folder.synced_names : folder.steps[reached - 1];
    for (const auto& [name, node] : names) {
      const std::string own = path + "/" + name;
      image[own] = node->is_folder ? std::optional<std::string>() : left_of(*node);
      self(self, *node, own);
    }
  };
  add(add, *root_, "");
  return image;
}

}  // namespace dtrun::dtensor::dcp
