// PassedCalls: one rank's calls to a file system that several ranks share. Each can fail, and those
// that change something are kept, to be made again in another order.
#pragma once

#include <cerrno>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/dtensor/checkpoint/file_calls.h"

namespace dtrun::dtensor::dcp {

/// A file system on which calls are made again; fds are other ones there.
struct Replay {
  FileCalls& files;
  std::map<int, int> fds = {};
};

struct KeptCall {
  int epoch;  ///< how often the rank had met the others before
  std::function<void(Replay&)> make;
  bool is_sync = false;
};

class PassedCalls : public FileCalls {
 public:
  explicit PassedCalls(FileCalls& to) : to_(to) {}

  /// The n-th call from now on fails with that errno, once. 0: none.
  void fail(int call, int error) { fails_at_ = call, error_ = error, calls_ = 0; }
  int calls() const { return calls_; }
  /// The rank has met the others.
  void next_epoch() {
    const std::lock_guard guard(mutex_);
    ++epoch_;
  }
  const std::vector<KeptCall>& kept() const { return kept_; }

  int create(const std::string& path) override {
    return opened([path](FileCalls& files) { return files.create(path); });
  }
  int open(const std::string& path) override {
    return opened([path](FileCalls& files) { return files.open(path); });
  }
  int open_folder(const std::string& path) override {
    return opened([path](FileCalls& files) { return files.open_folder(path); });
  }
  ssize_t write(int fd, const void* bytes, std::size_t count) override {
    if (fails()) return -1;
    const ssize_t taken = to_.write(fd, bytes, count);
    if (taken > 0)
      keep([fd, text = std::string(static_cast<const char*>(bytes),
                                   static_cast<std::size_t>(taken))](Replay& replay) {
        replay.files.write(replay.fds.at(fd), text.data(), text.size());
      });
    return taken;
  }
  ssize_t read_at(int fd, void* bytes, std::size_t count, std::uint64_t offset) override {
    return fails() ? -1 : to_.read_at(fd, bytes, count, offset);
  }
  bool is_cached(int fd, std::uint64_t offset) override { return to_.is_cached(fd, offset); }
  int direct(int fd, bool on) override { return fails() ? -1 : to_.direct(fd, on); }
  int status(int fd, FileStatus& status) override { return fails() ? -1 : to_.status(fd, status); }
  int status(const std::string& path, FileStatus& status) override {
    return fails() ? -1 : to_.status(path, status);
  }
  int sync(int fd) override {
    const int result = on_fd(fd, [](FileCalls& files, int own) { return files.sync(own); });
    const std::lock_guard guard(mutex_);
    if (result == 0) kept_.back().is_sync = true;
    return result;
  }
  /// It is closed even where that fails.
  int close(int fd) override {
    const bool has_failed = fails();
    const int error = errno;
    to_.close(fd);
    keep([fd](Replay& replay) { replay.files.close(replay.fds.at(fd)); });
    errno = error;
    return has_failed ? -1 : 0;
  }
  int lock(int fd) override {
    return on_fd(fd, [](FileCalls& files, int own) { return files.lock(own); });
  }
  int make_folder(const std::string& path) override {
    return named([path](FileCalls& files) { return files.make_folder(path); });
  }
  int rename(const std::string& from, const std::string& to) override {
    return named([from, to](FileCalls& files) { return files.rename(from, to); });
  }
  int exchange(const std::string& a, const std::string& b) override {
    return named([a, b](FileCalls& files) { return files.exchange(a, b); });
  }
  int remove(const std::string& path) override {
    return named([path](FileCalls& files) { return files.remove(path); });
  }
  int remove_folder(const std::string& path) override {
    return named([path](FileCalls& files) { return files.remove_folder(path); });
  }
  int list(const std::string& path, std::vector<std::string>& names) override {
    return fails() ? -1 : to_.list(path, names);
  }

 private:
  bool fails() {
    const std::lock_guard guard(mutex_);
    if (++calls_ != fails_at_) return false;
    errno = error_;
    return true;
  }
  void keep(std::function<void(Replay&)> make) {
    const std::lock_guard guard(mutex_);
    kept_.push_back({epoch_, std::move(make)});
  }
  template <typename Call>
  int opened(Call call) {
    if (fails()) return -1;
    const int fd = call(to_);
    if (fd >= 0) keep([fd, call](Replay& replay) { replay.fds[fd] = call(replay.files); });
    return fd;
  }
  template <typename Call>
  int on_fd(int fd, Call call) {
    if (fails()) return -1;
    const int result = call(to_, fd);
    if (result == 0) keep([fd, call](Replay& replay) { call(replay.files, replay.fds.at(fd)); });
    return result;
  }
  template <typename Call>
  int named(Call call) {
    if (fails()) return -1;
    const int result = call(to_);
    if (result == 0) keep([call](Replay& replay) { call(replay.files); });
    return result;
  }

  FileCalls& to_;
  std::mutex mutex_;
  int epoch_ = 0;
  std::vector<KeptCall> kept_;
  int calls_ = 0, fails_at_ = 0, error_ = 0;
};

}  // namespace dtrun::dtensor::dcp
