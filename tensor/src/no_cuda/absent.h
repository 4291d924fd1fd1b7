// What a kernel says in a build without CUDA.
#pragma once

namespace dtrun::tensors::cuda {

/// @throws Error kUnavailable
[[noreturn]] void throw_absent();

}  // namespace dtrun::tensors::cuda
