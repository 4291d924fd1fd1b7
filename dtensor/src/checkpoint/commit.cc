#include "checkpoint/commit.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <random>
#include <thread>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;
namespace log = base::log;

namespace {

constexpr std::string_view kPartialEnd = ".partial";

/// With those above it; each is in its parent for good.
void make_folders(FileCalls& files, const std::string& path) {
  if (path == "." || path == "/" || is_there(files, path)) return;
  make_folders(files, parent_of(path));
  ensure_folder(files, path);
  sync_folder(files, parent_of(path));
}

bool is_of_checkpoint(const std::string& name) {
  return name == kManifestName || (name.starts_with("shard-") && name.ends_with(".safetensors"));
}

/// What may be replaced: a checkpoint, whole or damaged, and a folder with nothing in it.
void check_target(FileCalls& files, const std::string& folder, Existing existing) {
  if (!is_there(files, folder)) return;
  if (existing == Existing::refuse)
    throw Error(ErrorCode::kInvalidArgument, folder + " is there already", "",
                "another name, or {.existing = Existing::replace}");
  const std::vector<std::string> names =
      is_folder(files, folder) ? names_in(files, folder) : std::vector<std::string>{"."};
  const auto foreign = std::ranges::find_if_not(names, is_of_checkpoint);
  if (foreign != names.end())
    throw Error(ErrorCode::kInvalidArgument, folder + " is no checkpoint, and is not replaced",
                *foreign == "." ? "it is no folder" : "it has " + *foreign, "another name");
}

/// Makes a folder and locks it. In between another save of the same checkpoint may take it for one
/// that was cut short, and remove it: then it is made again. @param target for which it is made
std::unique_ptr<OpenFile> made_and_locked(FileCalls& files, const std::string& path,
                                          const std::string& target) {
  const auto deadline = base::Deadline::after(std::chrono::seconds(1));
  for (bool is_first = true; is_first || !deadline.expired(); is_first = false) {
    // Whoever holds the lock is about to remove an empty folder, which takes microseconds.
    if (!is_first && is_there(files, path)) {
      std::this_thread::yield();
      continue;
    }
    make_folder(files, path);
    try {
      auto folder = std::make_unique<OpenFile>(OpenFile::open_folder(files, path));
      const Lock lock = folder->try_lock();
      if (lock == Lock::unsupported)
        log::info(log::Component::kDtensor, "{} is saved without a lock: its file system has none",
                  target);
      if (lock == Lock::unsupported || (lock == Lock::held && is_there(files, path))) return folder;
    } catch (const Error&) {
      // Removed before it was opened; else nothing is left of it.
      if (files.remove_folder(path) < 0 && errno == ENOENT) continue;
      throw;
    }
  }
  files.remove_folder(path);
  throw Error(ErrorCode::kSystem, "another process has taken " + path,
              "two trainings save to one folder", "a folder for each");
}

}  // namespace

bool may_be_removed(FileCalls& files, const std::string& folder) {
  if (!is_folder(files, folder)) return false;
  return std::ranges::all_of(names_in(files, folder), [&](const std::string& name) {
    return is_of_checkpoint(name) && !is_folder(files, path_in(folder, name));
  });
}

std::uint64_t random_generation() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::string partial_name(const std::string& folder, std::uint64_t generation) {
  return path_in(parent_of(folder),
                 fmt::format(".{}.{:016x}{}", name_of(folder), generation, kPartialEnd));
}

bool is_partial_name(const std::string& name, const std::string& of) {
  constexpr std::size_t kNumber = 17;  // a dot and 16 digits
  if (!name.starts_with('.') || !name.ends_with(kPartialEnd) ||
      name.size() < 2 + kNumber + kPartialEnd.size())
    return false;
  const std::string number = name.substr(name.size() - kPartialEnd.size() - kNumber, kNumber);
  const std::string base = name.substr(1, name.size() - kPartialEnd.size() - kNumber - 1);
  return number[0] == '.' && number.find_first_not_of("0123456789abcdef", 1) == std::string::npos &&
         (of.empty() || base == of);
}

void remove_stale(FileCalls& files, const std::string& parent, const std::string& of) {
  for (const std::string& name : names_in(files, parent)) {
    if (!is_partial_name(name, of)) continue;
    const std::string path = path_in(parent, name);
    try {
      // A file is that of an offline copy to one; a link leads to what is not ours.
      if (!is_folder(files, path)) continue;
      OpenFile folder = OpenFile::open_folder(files, path);
      const Lock lock = folder.try_lock();
      if (lock == Lock::busy) continue;
      if (lock == Lock::unsupported) {
        log::warning(log::Component::kDtensor,
                     "{} stays: this file system has no locks, so nobody can tell whether its save "
                     "is still under way; remove it when none is",
                     path);
        continue;
      }
      remove_folder(files, path);
      log::info(log::Component::kDtensor, "removed {}, which a save that was cut short has left",
                path);
    } catch (const Error& error) {
      log::warning(log::Component::kDtensor, "{} stays: {}", path, error.what());
    }
  }
}

PartialFolder::PartialFolder(FileCalls& files, const std::string& folder, std::uint64_t generation,
                             Existing existing)
    : files_(files), folder_(folder), path_(partial_name(folder, generation)), existing_(existing) {
  check_target(files, folder, existing);
  make_folders(files, parent_of(folder));
  remove_stale(files, parent_of(folder), name_of(folder));
  lock_ = made_and_locked(files, path_, folder);
}

PartialFolder::~PartialFolder() {
  if (is_over_) return;
  try {
    remove_folder(files_, path_);
  } catch (const Error& error) {
    log::warning(log::Component::kDtensor, "{} stays: {}", path_, error.what());
  }
}

// Where another process takes the folder for one of a killed save, as it may without locks.
void PartialFolder::check_shards(const Manifest& manifest) const {
  for (const SavedFile& file : manifest.files) {
    OpenFile shard = OpenFile::open(files_, path_in(path_, file.name));
    if (shard.bytes() != file.bytes)
      throw Error(ErrorCode::kSystem, shard.path() + " has changed before it was published",
                  "another process has written to it",
                  "save again; no two jobs save to one folder at a time");
    shard.close();
  }
}

void PartialFolder::commit(const Manifest& manifest) {
  check_shards(manifest);
  OpenFile file = OpenFile::create(files_, path_in(path_, std::string(kManifestName)));
  file.write(manifest_text(manifest));
  file.sync();
  file.close();
  commit();
}

void PartialFolder::commit() {
  lock_->sync();
  // It may have come since.
  check_target(files_, folder_, existing_);
  publish(is_there(files_, folder_));
}

void PartialFolder::publish(bool replaces) {
  const int result = replaces ? files_.exchange(path_, folder_) : files_.rename(path_, folder_);
  if (result < 0) {
    const int error = errno;
    throw base::system_error(
        (replaces ? "replace " : "give its name to ") + folder_, error,
        replaces && error == EINVAL
            ? "a new name for each checkpoint: this file system cannot exchange two folders"
            : "");
  }
  try {
    sync_folder(files_, parent_of(folder_));
  } catch (const Error&) {
    take_back(replaces);
    throw;
  }
  is_over_ = true;
  if (!replaces) return;
  try {
    remove_folder(files_, path_);
  } catch (const Error& error) {
    log::warning(log::Component::kDtensor, "the checkpoint before stays as {}: {}", path_,
                 error.what());
  }
}

// The new checkpoint is whole; but nobody may believe in it who was told that it failed.
void PartialFolder::take_back(bool replaced) noexcept {
  const int result = replaced ? files_.exchange(path_, folder_) : files_.rename(folder_, path_);
  if (result < 0) is_over_ = true;
}

}  // namespace dtrun::dtensor::dcp
