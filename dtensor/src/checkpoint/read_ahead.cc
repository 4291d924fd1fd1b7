#include "checkpoint/read_ahead.h"

#include <system_error>
#include <utility>

namespace dtrun::dtensor::dcp {

ReadAhead::ReadAhead(FileCalls& files, const std::string& folder, const Manifest& manifest,
                     PageCache cache, BlockWalk walk, Next next)
    : files_(files),
      folder_(folder),
      manifest_(manifest),
      cache_(cache),
      walk_(std::move(walk)),
      next_(std::move(next)) {
  try {
    for (std::thread& thread : threads_) thread = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    // There is no thread to be had: the first one reads, or who takes has to.
    if (!threads_[0].joinable()) has_ended_ = true;
  }
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard guard(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

std::optional<std::string_view> ReadAhead::take(const FilePart& part, DirectMemory& memory) {
  std::unique_lock lock(mutex_);
  Block& block = blocks_[taken_ % kBlocks];
  changed_.wait(lock, [&] { return block.is_read || (has_ended_ && taken_ == claimed_); });
  if (!block.is_read && fault_) std::rethrow_exception(fault_);
  if (!block.is_read || block.part != part) return std::nullopt;
  if (block.fault) std::rethrow_exception(block.fault);
  std::swap(block.memory, memory);
  const std::string_view bytes = block.bytes;
  block.is_read = false;
  ++taken_;
  lock.unlock();
  changed_.notify_all();
  return bytes;
}

// The walk is outside the lock that take() needs: of chunks with short runs it takes its time.
ReadAhead::Block* ReadAhead::claim() {
  const std::lock_guard claiming(claiming_);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_over_ || has_ended_ || claimed_ - taken_ < kBlocks; });
    if (is_over_ || has_ended_) return nullptr;
  }
  std::optional<FilePart> part = walk_.next();
  while (!part && next_(walk_)) part = walk_.next();
  if (!part) return nullptr;
  const std::lock_guard guard(mutex_);
  Block& block = blocks_[claimed_++ % kBlocks];
  block.part = *part;
  return &block;
}

void ReadAhead::read(Block& block, OpenFiles& open) const {
  const std::size_t file = block.part.file;
  auto place = open.find(file);
  if (place == open.end()) {
    if (open.size() == kMostOpenFiles) open.clear();
    place =
        open.try_emplace(file, files_, path_in(folder_, manifest_.files[file].name), cache_).first;
  }
  block.bytes = place->second.at(block.part.begin, block.part.bytes, block.memory);
}

void ReadAhead::end(const std::exception_ptr& fault) {
  const std::lock_guard guard(mutex_);
  if (!has_ended_) fault_ = fault;
  has_ended_ = true;
  changed_.notify_all();
}

void ReadAhead::run() {
  OpenFiles open;
  try {
    while (Block* const block = claim()) {
      try {
        read(*block, open);
      } catch (...) {
        block->fault = std::current_exception();
      }
      const std::lock_guard guard(mutex_);
      block->is_read = true;
      changed_.notify_all();
    }
    end(nullptr);
  } catch (...) {
    end(std::current_exception());
  }
}

}  // namespace dtrun::dtensor::dcp
