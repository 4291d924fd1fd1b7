// Commit: how a folder of files becomes a checkpoint, or nothing: written under a temporary name,
// synced, and renamed. One rank does it for all.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/open_file.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/checkpoint/manifest.h"

namespace dtrun::dtensor::dcp {

/// Whether it is a folder with nothing in it but what a checkpoint has, whole or damaged. Links are
/// not followed.
bool may_be_removed(FileCalls& files, const std::string& folder);
/// A number that no other save has.
std::uint64_t random_generation();
/// ".step-100.0123456789abcdef.partial" beside the folder.
std::string partial_name(const std::string& folder, std::uint64_t generation);
/// Whether it is one of a checkpoint of that name; empty: of any.
bool is_partial_name(const std::string& name, const std::string& of);
/// Removes what killed saves have left beside the folder: what nobody holds the lock of.
void remove_stale(FileCalls& files, const std::string& parent, const std::string& of);

/// The folder that is being written. Its owner holds its lock. Abandoned unless committed.
class PartialFolder {
 public:
  /// Makes the folders above, too. @throws Error kInvalidArgument for a target that is there;
  /// kSystem
  PartialFolder(FileCalls& files, const std::string& folder, std::uint64_t generation,
                Existing existing);
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder();

  const std::string& path() const { return path_; }
  /// All shards are on the disk. @throws Error; then the target is as it was
  void commit(const Manifest& manifest);
  /// A folder of files that are no checkpoint's.
  void commit();

 private:
  void check_shards(const Manifest& manifest) const;
  void publish(bool replaces);
  void take_back(bool replaced) noexcept;

  FileCalls& files_;
  const std::string folder_;
  const std::string path_;
  const Existing existing_;
  std::unique_ptr<OpenFile> lock_;
  bool is_over_ = false;
};

}  // namespace dtrun::dtensor::dcp
