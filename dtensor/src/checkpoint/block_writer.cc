#include "checkpoint/block_writer.h"

#include <algorithm>
#include <cstring>
#include <system_error>

namespace dtrun::dtensor::dcp {
namespace {

constexpr std::uint64_t kLargeFile = std::uint64_t{4} << 20;

}  // namespace

BlockWriter::BlockWriter(OpenFile& file, std::uint64_t bytes, std::size_t blocks)
    : file_(file), blocks_(blocks) {
  if (bytes < kLargeFile) return;
  is_direct_ = file_.set_direct(true);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    // There is no thread to be had: the caller's own writes the blocks.
  }
}

BlockWriter::~BlockWriter() {
  stop();
}

void BlockWriter::stop() {
  {
    const std::lock_guard guard(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

BlockWriter::Block& BlockWriter::next_block() {
  if (thread_.joinable()) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return fault_ || filled_ - written_ < blocks_.size(); });
    if (fault_) std::rethrow_exception(fault_);
  }
  return blocks_[filled_ % blocks_.size()];
}

void BlockWriter::write(std::string_view bytes) {
  while (!bytes.empty()) {
    Block& block = next_block();
    char* const memory = block.memory.resize(kWriteBytes);
    const std::size_t count = std::min(bytes.size(), kWriteBytes - block.size);
    std::memcpy(memory + block.size, bytes.data(), count);
    block.size += count;
    bytes.remove_prefix(count);
    if (block.size == kWriteBytes) hand_over();
  }
}

void BlockWriter::hand_over() {
  if (!thread_.joinable()) {
    Block& block = blocks_[filled_ % blocks_.size()];
    put(block);
    block.size = 0;
    return;
  }
  {
    const std::lock_guard guard(mutex_);
    ++filled_;
  }
  changed_.notify_all();
}

void BlockWriter::finish() {
  if (next_block().size > 0) hand_over();
  stop();
  if (fault_) std::rethrow_exception(fault_);
}

// Only the last block is not a whole one.
void BlockWriter::put(const Block& block) {
  std::string_view bytes(block.memory.data(), block.size);
  if (is_direct_ && bytes.size() % kDirectBytes != 0) {
    file_.write(bytes.substr(0, bytes.size() / kDirectBytes * kDirectBytes));
    bytes.remove_prefix(bytes.size() / kDirectBytes * kDirectBytes);
    file_.set_direct(false);
  }
  file_.write(bytes);
}

void BlockWriter::run() {
  try {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return is_over_ || written_ < filled_; });
      if (written_ == filled_) return;
      Block& block = blocks_[written_ % blocks_.size()];
      lock.unlock();
      put(block);
      block.size = 0;
      lock.lock();
      ++written_;
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard guard(mutex_);
    fault_ = std::current_exception();
    changed_.notify_all();
  }
}

}  // namespace dtrun::dtensor::dcp
