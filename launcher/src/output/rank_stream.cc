#include "output/rank_stream.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>

namespace dtrun::launcher {
RankStream::RankStream(base::EventLoop& loop, base::UniqueFd source, base::OutputSink& sink,
                       base::LineRelayOptions options, base::UniqueFd file,
                       base::EventLoop::Callback on_end) {
  if (file) copy_ = std::make_unique<base::StreamCopy>(std::move(file));
  options.copy = copy_.get();
  relay_ = std::make_unique<base::LineRelay>(loop, std::move(source), sink, std::move(options),
                                             std::move(on_end));
}

void RankStream::finish() {
  if (relay_) relay_->finish();
}

void RankStream::read_waiting() {
  if (relay_) relay_->read_waiting();
}

std::string RankStream::tail(std::size_t bytes) const {
  if (relay_) {
    const std::string& tail = relay_->tail();
    return tail.substr(tail.size() - std::min(bytes, tail.size()));
  }
  struct stat status {};
  if (!file_ || ::fstat(file_.get(), &status) != 0) return "";
  const auto size = static_cast<std::size_t>(status.st_size);
  std::string result(std::min(bytes, size), '\0');
  const ssize_t n =
      ::pread(file_.get(), result.data(), result.size(), static_cast<off_t>(size - result.size()));
  result.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return result;
}

FileLoss RankStream::file_loss() const {
  if (!copy_) return {};
  return {copy_->lost_bytes(), copy_->error_number()};
}

void RankStream::on_file_loss(std::function<void(int error_number)> callback) {
  if (copy_) copy_->on_failure(std::move(callback));
}

bool RankStream::disk_is_full() const {
  struct statvfs status {};
  if (!file_ || ::fstatvfs(file_.get(), &status) != 0 || status.f_blocks == 0) return false;
  return (::geteuid() == 0 ? status.f_bfree : status.f_bavail) == 0;
}

}  // namespace dtrun::launcher
