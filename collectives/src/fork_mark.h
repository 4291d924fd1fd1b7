// ForkMark: tells a process from its children. A child made by fork() has a copy of every object,
// but none of the threads, and its sockets and shared memory are its parent's: it must not touch
// them. The mark is a page that the kernel empties in children, so that asking costs a load.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <new>

#include "dtrun/base/error.h"

namespace dtrun::collectives {

class ForkMark {
 public:
  /// @throws Error kSystem
  ForkMark() {
    void* page =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw base::system_error("map a page");
    mark_ = new (page) std::atomic<int>(1);
    if (::madvise(page, kBytes, MADV_WIPEONFORK) != 0) {
      const base::Error error = base::system_error("have a page emptied on fork");
      ::munmap(page, kBytes);
      throw error;
    }
  }
  ~ForkMark() { ::munmap(mark_, kBytes); }
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  /// This process is a child of the one that made the mark.
  bool in_child() const { return mark_->load(std::memory_order_relaxed) == 0; }

 private:
  static constexpr std::size_t kBytes = 4096;
  std::atomic<int>* mark_;
};

}  // namespace dtrun::collectives
