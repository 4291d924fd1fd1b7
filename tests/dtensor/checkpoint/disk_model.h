// DiskModel: a file system in memory that knows what of it a power cut would leave: what was
// synced, and of the rest anything. It counts the calls, lets any of them fail, and gives the
// images that a cut after each call may leave.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "dtrun/dtensor/checkpoint/file_calls.h"

namespace dtrun::dtensor::dcp {

/// A path's content; nullopt: a folder.
using DiskImage = std::map<std::string, std::optional<std::string>>;

class DiskModel : public FileCalls {
 public:
  /// With one folder, "/disk".
  DiskModel();
  explicit DiskModel(const DiskImage& image);

  /// The n-th call from now on fails with that errno, once; EINTR too. 0: none.
  void fail(int call, int error) { fails_at_ = call, error_ = error, calls_ = 0; }
  int calls() const { return calls_; }
  /// A write or a read takes so many bytes at most.
  void take_at_most(std::size_t bytes) { most_ = bytes; }

  /// The file system has no direct I/O.
  void refuse_direct() { has_direct_ = false; }
  std::uint64_t bytes_written_directly() const { return bytes_written_directly_; }
  std::uint64_t bytes_read_directly() const { return bytes_read_directly_; }

  /// As programs see it.
  DiskImage seen() const;
  /// What a power cut may leave now: names and bytes that were not synced are there or not, or in
  /// part, as `random` has it.
  DiskImage after_cut(std::mt19937& random) const;
  /// Called before each call that changes something.
  std::function<void()> before_change;

  int create(const std::string& path) override;
  int open(const std::string& path) override;
  int open_folder(const std::string& path) override;
  ssize_t write(int fd, const void* bytes, std::size_t count) override;
  ssize_t read_at(int fd, void* bytes, std::size_t count, std::uint64_t offset) override;
  /// Nothing is.
  bool is_cached(int, std::uint64_t) override { return false; }
  int direct(int fd, bool on) override;
  int status(int fd, FileStatus& status) override;
  int status(const std::string& path, FileStatus& status) override;
  int sync(int fd) override;
  int close(int fd) override;
  int lock(int fd) override;
  int make_folder(const std::string& path) override;
  int rename(const std::string& from, const std::string& to) override;
  int exchange(const std::string& a, const std::string& b) override;
  int remove(const std::string& path) override;
  int remove_folder(const std::string& path) override;
  int list(const std::string& path, std::vector<std::string>& names) override;

 private:
  struct Node {
    bool is_folder = false;
    std::string bytes;
    std::size_t synced_bytes = 0;
    /// Of a folder: as seen, and as on the disk.
    std::map<std::string, std::shared_ptr<Node>> names, synced_names;
    /// Changes of names since the folder was synced, in their order: each is all or nothing, and
    /// those of one folder reach the disk in order.
    std::vector<std::map<std::string, std::shared_ptr<Node>>> steps;
    bool is_locked = false;
  };
  using NodePointer = std::shared_ptr<Node>;
  struct Place {
    NodePointer folder;
    std::string name;
    NodePointer node;  ///< null: none
  };
  std::optional<Place> find(const std::string& path) const;
  /// @return true: it fails, errno is set
  bool fails();
  bool changes();
  /// Whether direct I/O takes the call.
  bool fits(int fd, const void* bytes, std::size_t count, std::uint64_t offset) const;
  int open_node(const NodePointer& node);
  static void step(Node& folder) { folder.steps.push_back(folder.names); }
  static int refuse(int error);

  /// Recursive, for before_change looks at the disk.
  mutable std::recursive_mutex mutex_;
  NodePointer root_ = std::make_shared<Node>();
  std::map<int, NodePointer> open_;
  std::set<int> direct_;
  bool has_direct_ = true;
  std::uint64_t bytes_written_directly_ = 0, bytes_read_directly_ = 0;
  int next_fd_ = 1000;
  int calls_ = 0, fails_at_ = 0, error_ = 0;
  std::size_t most_ = ~std::size_t{0};
};

}  // namespace dtrun::dtensor::dcp
