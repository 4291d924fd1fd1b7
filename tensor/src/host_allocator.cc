#include "dtrun/tensor/host_allocator.h"

namespace dtrun::tensors {

constinit thread_local HostAllocator* HostAllocatorScope::innermost_ = nullptr;

HostAllocatorScope::HostAllocatorScope(HostAllocator& allocator) : around_(innermost_) {
  innermost_ = &allocator;
}
HostAllocatorScope::~HostAllocatorScope() {
  innermost_ = around_;
}

}  // namespace dtrun::tensors
