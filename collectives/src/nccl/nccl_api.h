// NcclApi: the calls of NCCL that the backend makes, as one table of functions, in types of our
// own: what stands above it is compiled everywhere, and tested against a table that simulates NCCL.
// real_nccl_api.cc has the real one. Communicators are made non-blocking: a call that cannot finish
// at once returns in_progress, and no other call may follow on that communicator until async_error
// has stopped saying so. One thread at a time per communicator.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "device_api.h"

namespace dtrun::collectives::nccl {

/// ncclResult_t, number by number.
enum class Result {
  success,
  unhandled_cuda_error,
  system_error,
  internal_error,
  invalid_argument,
  invalid_usage,
  remote_error,
  in_progress,
};
/// ncclDataType_t.
enum class DataType { i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16 };
/// ncclRedOp_t; those that are made have numbers behind these.
enum class Reduction { sum, product, max, min, average };

using Communicator = struct CommunicatorTag*;

struct UniqueId {
  char bytes[128];
};

/// Elements to be read, or written.
struct Source {
  const void* data;
  std::size_t count;
  DataType type;
};

class NcclApi {
 public:
  virtual ~NcclApi() = default;

  /// 22809 for 2.28.9.
  virtual int version() = 0;
  virtual std::string error_text(Result result) = 0;
  /// The library's own words about its last failure.
  virtual std::string last_error(Communicator communicator) = 0;

  virtual Result unique_id(UniqueId& id) = 0;
  /// On the current device. @param made NCCL's own thread may write here until async_error has
  /// stopped saying in_progress, so it must stay where it is
  virtual Result init_rank(Communicator* made, int size, const UniqueId& id, int rank) = 0;
  /// Collective over the parent. @param color nullopt: in no group, `made` stays null
  /// @param made as above, and null until the parent's async_error has stopped saying in_progress
  virtual Result split(Communicator parent, std::optional<int> color, int key,
                       Communicator* made) = 0;
  virtual Result async_error(Communicator communicator, Result& state) = 0;
  virtual Result finalize(Communicator communicator) = 0;
  /// Frees, as abort does.
  virtual Result destroy(Communicator communicator) = 0;
  /// Local: tells what runs on the device to end. What the communicator has is freed here, or at
  /// the end of the group of calls, which blocks while any kernel runs on the device.
  virtual Result abort(Communicator communicator) = 0;

  /// A sum of products, for calls on that communicator. Nothing to ask after.
  /// @param factor one element of that type, in host memory
  virtual Result make_premul_sum(Reduction* made, const void* factor, DataType type,
                                 Communicator communicator) = 0;
  /// Once the calls that use it are enqueued. One that is not destroyed goes with its communicator.
  virtual Result destroy_reduction(Reduction made, Communicator communicator) = 0;

  virtual Result group_start() = 0;
  virtual Result group_end() = 0;
  virtual Result all_reduce(Source source, void* target, Reduction op, Communicator communicator,
                            DeviceStream stream) = 0;
  virtual Result broadcast(Source source, void* target, int root, Communicator communicator,
                           DeviceStream stream) = 0;
  virtual Result reduce(Source source, void* target, Reduction op, int root,
                        Communicator communicator, DeviceStream stream) = 0;
  /// The target holds the count of the source once per rank.
  virtual Result all_gather(Source source, void* target, Communicator communicator,
                            DeviceStream stream) = 0;
  /// source.count: of the target; the source holds it once per rank.
  virtual Result reduce_scatter(Source source, void* target, Reduction op,
                                Communicator communicator, DeviceStream stream) = 0;
  virtual Result send(Source source, int peer, Communicator communicator, DeviceStream stream) = 0;
  virtual Result receive(void* target, std::size_t count, DataType type, int peer,
                         Communicator communicator, DeviceStream stream) = 0;
};

/// @throws Error kUnavailable where the library is not, or lacks something
std::shared_ptr<NcclApi> real_nccl_api();

}  // namespace dtrun::collectives::nccl
