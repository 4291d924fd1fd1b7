// CudaApi: the calls of the CUDA runtime that dtrun makes, as one table of function pointers. What
// stands above it (allocator, streams, copies, the nccl backend's order of streams and events) is
// tested on machines without a GPU against a table that simulates one. The table itself is constant
// and may be used from all threads; each call means what the runtime's call of that name means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

struct CUstream_st;  // cudaStream_t points to it
struct CUevent_st;   // cudaEvent_t points to it

namespace dtrun::tensors::cuda {

/// nullptr is the current device's default stream.
using StreamHandle = CUstream_st*;
using EventHandle = CUevent_st*;

/// A cudaError_t. Only those that decide something have a name here.
enum class Status : int {
  not_built = -1,  ///< every call of a build without CUDA
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  insufficient_driver = 35,
  no_device = 100,
  invalid_device = 101,
  not_ready = 600,
  illegal_address = 700,
};

/// Timing events can be subtracted, and cost more.
enum class EventTiming { off, on };

struct MemoryInfo {
  std::size_t free;
  std::size_t total;
};

/// All of dtrun's kernels do one thing per index: function(body, count) runs body(i) for i in
/// [0, count) on the device, run_on_host does the same here.
struct KernelLaunch {
  const void* function;
  const void* body;  ///< copied by the call
  std::size_t body_bytes;
  std::int64_t count;
  unsigned blocks;
  unsigned threads;
  void (*run_on_host)(const void* body, std::int64_t count);
};

struct CudaApi {
  // Devices. The current one is the thread's.
  Status (*get_device_count)(int* count);
  Status (*get_device)(int* index);
  Status (*set_device)(int index);
  /// Whether the process works on that device already: set_device() makes a context where it does
  /// not, which takes some 500 MB there.
  Status (*has_context)(int index, bool* has);
  Status (*device_synchronize)();

  // Memory. malloc's is the current device's; host_malloc's is pinned, for all devices.
  Status (*memory_info)(MemoryInfo* info);
  Status (*malloc)(void** data, std::size_t bytes);
  Status (*free)(void* data);
  Status (*host_malloc)(void** data, std::size_t bytes);
  Status (*host_free)(void* data);
  /// Between any two places; unified addressing tells which. From and to pageable host memory it
  /// may return late; a caller that needs the bytes synchronizes.
  Status (*memcpy_async)(void* target, const void* source, std::size_t bytes, StreamHandle stream);
  Status (*memset_async)(void* target, int byte, std::size_t bytes, StreamHandle stream);

  // Streams. stream_create's do not wait for the default stream, nor it for them.
  Status (*stream_create)(StreamHandle* stream);
  Status (*stream_destroy)(StreamHandle stream);
  Status (*stream_synchronize)(StreamHandle stream);
  Status (*stream_query)(StreamHandle stream);  ///< success or not_ready
  Status (*stream_wait_event)(StreamHandle stream, EventHandle event);
  /// The function may not call CUDA.
  Status (*launch_host_function)(StreamHandle stream, void (*function)(void*), void* argument);
  Status (*launch_kernel)(const KernelLaunch& launch, StreamHandle stream);

  // Events.
  Status (*event_create)(EventHandle* event, EventTiming timing);
  Status (*event_destroy)(EventHandle event);
  Status (*event_record)(EventHandle event, StreamHandle stream);
  Status (*event_query)(EventHandle event);  ///< success or not_ready
  Status (*event_synchronize)(EventHandle event);
  Status (*event_elapsed)(float* milliseconds, EventHandle start, EventHandle end);

  // Errors.
  Status (*get_last_error)();  ///< and forgets it, unless the context is broken
  const char* (*error_name)(Status status);
  const char* (*error_text)(Status status);
};

/// The runtime's own calls; of a build without CUDA, calls that all return not_built.
const CudaApi& runtime_api();

/// Throws what failed as an Error. @param action what was tried: "record an event"
/// @throws Error kUnavailable without CUDA, driver or device; else kSystem
void check(const CudaApi& api, Status status, std::string_view action);

}  // namespace dtrun::tensors::cuda
