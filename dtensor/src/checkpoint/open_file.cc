#include "checkpoint/open_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "dtrun/base/error.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;

namespace {

/// A call that no signal has interrupted.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// A write that fails for want of space has a remedy.
[[noreturn]] void refuse_call(const std::string& action, const std::string& path) {
  const int error = errno;
  std::string remedy;
  if (error == ENOSPC || error == EDQUOT) remedy = "free space, or save to another file system";
  if (error == EROFS || error == EACCES || error == EPERM)
    remedy = "a folder that this user may write to";
  throw base::system_error(action + " " + path, error, remedy);
}

}  // namespace

OpenFile OpenFile::create(FileCalls& files, const std::string& path) {
  const int fd = uninterrupted([&] { return files.create(path); });
  if (fd < 0) refuse_call("create", path);
  return {files, path, fd};
}

OpenFile OpenFile::open(FileCalls& files, const std::string& path) {
  const int fd = uninterrupted([&] { return files.open(path); });
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
    throw Error(ErrorCode::kNotFound, path + " is not there", "the checkpoint names it",
                "copy the whole folder, or load an older checkpoint");
  // Files are opened with O_NOFOLLOW (file_calls.cc): a link could lead out of the checkpoint.
  if (fd < 0 && errno == ELOOP)
    throw Error(ErrorCode::kProtocol, path + " is a link", "a checkpoint has files only",
                "copy what it leads to in its place");
  if (fd < 0) refuse_call("open", path);
  OpenFile file(files, path, fd);
  FileStatus found;
  if (files.status(fd, found) < 0) refuse_call("look at", path);
  if (found.kind != FileKind::regular)
    throw Error(ErrorCode::kProtocol, path + " is no file", "a checkpoint has files only",
                "copy what it leads to in its place");
  return file;
}

OpenFile OpenFile::open_folder(FileCalls& files, const std::string& path) {
  const int fd = uninterrupted([&] { return files.open_folder(path); });
  if (fd < 0) refuse_call("open", path);
  return {files, path, fd};
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : files_(other.files_),
      path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      is_direct_(other.is_direct_),
      can_be_direct_(other.can_be_direct_) {}

OpenFile::~OpenFile() {
  if (fd_ >= 0) files_.close(fd_);
}

void OpenFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        uninterrupted([&] { return files_.write(fd_, bytes.data(), bytes.size()); });
    if (written < 0 && turn_direct_off()) continue;
    // No error and no progress: without this the loop would never end.
    if (written == 0) errno = EIO;
    if (written <= 0) refuse_call("write to", path_);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void OpenFile::read_at(std::uint64_t offset, char* bytes, std::size_t count) {
  read_at(offset, bytes, count, count);
}

void OpenFile::read_at(std::uint64_t offset, char* bytes, std::size_t least, std::size_t most) {
  for (std::size_t done = 0; done < least;) {
    const ssize_t read = uninterrupted(
        [&] { return files_.read_at(fd_, bytes + done, most - done, offset + done); });
    if (read < 0 && turn_direct_off()) continue;
    if (read < 0) refuse_call("read", path_);
    if (read == 0)
      throw Error(ErrorCode::kProtocol,
                  fmt::format("{} ends at byte {}, before its last one", path_, offset + done),
                  "the file was cut, or is being written",
                  "copy it again, or load an older checkpoint");
    done += static_cast<std::size_t>(read);
  }
}

std::string_view OpenFile::read_direct_at(std::uint64_t offset, std::size_t count,
                                          DirectMemory& memory) {
  const std::size_t before = offset % kDirectBytes;
  memory.resize(before + count);
  // Direct reads are of whole multiples of kDirectBytes. The last one may end earlier, at the end
  // of the file.
  const std::size_t most = (before + count + kDirectBytes - 1) / kDirectBytes * kDirectBytes;
  read_at(offset - before, memory.data(), before + count, most);
  return {memory.data() + before, count};
}

// The file system wants other multiples, or the call before ended within one.
bool OpenFile::turn_direct_off() {
  if (errno != EINVAL || !is_direct_) return false;
  can_be_direct_ = false;
  return set_direct(false);
}

bool OpenFile::set_direct(bool on) {
  if (on && !can_be_direct_) return false;
  if (is_direct_ != on && files_.direct(fd_, on) == 0) is_direct_ = on;
  return is_direct_ == on;
}

std::uint64_t OpenFile::bytes() {
  FileStatus found;
  if (files_.status(fd_, found) < 0) refuse_call("look at", path_);
  return found.bytes;
}

Lock OpenFile::try_lock() {
  if (uninterrupted([&] { return files_.lock(fd_); }) == 0) return Lock::held;
  if (errno == EWOULDBLOCK) return Lock::busy;
  if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL)
    return Lock::unsupported;
  refuse_call("lock", path_);
}

// After a failed fsync the kernel takes the pages for written: a second one would say nothing.
void OpenFile::sync() {
  if (uninterrupted([&] { return files_.sync(fd_); }) < 0) refuse_call("sync", path_);
}

void OpenFile::close() {
  const int fd = std::exchange(fd_, -1);
  // Linux has closed the file also where close() was interrupted: a second call might close another
  // thread's new file.
  if (files_.close(fd) < 0 && errno != EINTR) refuse_call("close", path_);
}

std::string whole_text(FileCalls& files, const std::string& path, std::uint64_t most_bytes) {
  OpenFile file = OpenFile::open(files, path);
  const std::uint64_t bytes = file.bytes();
  if (bytes > most_bytes)
    throw Error(ErrorCode::kProtocol, path + " has " + std::to_string(bytes) + " bytes",
                "no such file is so large", "a folder that was saved as a checkpoint");
  std::string text(bytes, '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

void make_folder(FileCalls& files, const std::string& path) {
  if (uninterrupted([&] { return files.make_folder(path); }) < 0)
    refuse_call("make the folder", path);
}

void ensure_folder(FileCalls& files, const std::string& path) {
  if (uninterrupted([&] { return files.make_folder(path); }) < 0 && errno != EEXIST)
    refuse_call("make the folder", path);
}

void sync_folder(FileCalls& files, const std::string& path) {
  OpenFile folder = OpenFile::open_folder(files, path);
  folder.sync();
  folder.close();
}

bool is_there(FileCalls& files, const std::string& path) {
  FileStatus found;
  if (files.status(path, found) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) refuse_call("look at", path);
  return false;
}

bool is_folder(FileCalls& files, const std::string& path) {
  FileStatus found;
  if (files.status(path, found) == 0) return found.kind == FileKind::folder;
  if (errno != ENOENT && errno != ENOTDIR) refuse_call("look at", path);
  return false;
}

bool leads_to_folder(FileCalls& files, const std::string& path) {
  return is_folder(files, path) || is_folder(files, path_in(path, "."));
}

std::vector<std::string> names_in(FileCalls& files, const std::string& path) {
  std::vector<std::string> names;
  if (files.list(path, names) < 0) refuse_call("list", path);
  std::ranges::sort(names);
  return names;
}

void remove_folder(FileCalls& files, const std::string& path) {
  if (!is_folder(files, path))
    throw Error(ErrorCode::kProtocol, path + " is no folder", "links are not followed",
                "the path of the folder itself");
  for (const std::string& name : names_in(files, path)) {
    if (files.remove(path_in(path, name)) < 0 && errno != ENOENT)
      refuse_call("remove", path_in(path, name));
  }
  if (files.remove_folder(path) < 0 && errno != ENOENT) refuse_call("remove", path);
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string path_in(const std::string& folder, const std::string& name) {
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

}  // namespace dtrun::dtensor::dcp
