// The one file that knows NCCL.
#include <fmt/core.h>
#include <nccl.h>

#include <cstring>

#include "dtrun/base/dynamic_library.h"
#include "dtrun/base/error.h"
#include "nccl/nccl_api.h"

namespace dtrun::collectives::nccl {

using base::DynamicLibrary;
using base::Error;
using base::ErrorCode;

namespace {

// nccl_api.h has NCCL's own numbers, so results and types are cast and need no tables.
static_assert(static_cast<int>(Result::success) == ncclSuccess);
static_assert(static_cast<int>(Result::unhandled_cuda_error) == ncclUnhandledCudaError);
static_assert(static_cast<int>(Result::system_error) == ncclSystemError);
static_assert(static_cast<int>(Result::internal_error) == ncclInternalError);
static_assert(static_cast<int>(Result::invalid_argument) == ncclInvalidArgument);
static_assert(static_cast<int>(Result::invalid_usage) == ncclInvalidUsage);
static_assert(static_cast<int>(Result::remote_error) == ncclRemoteError);
static_assert(static_cast<int>(Result::in_progress) == ncclInProgress);
static_assert(static_cast<int>(DataType::i8) == ncclInt8);
static_assert(static_cast<int>(DataType::u8) == ncclUint8);
static_assert(static_cast<int>(DataType::i32) == ncclInt32);
static_assert(static_cast<int>(DataType::u32) == ncclUint32);
static_assert(static_cast<int>(DataType::i64) == ncclInt64);
static_assert(static_cast<int>(DataType::u64) == ncclUint64);
static_assert(static_cast<int>(DataType::f16) == ncclFloat16);
static_assert(static_cast<int>(DataType::f32) == ncclFloat32);
static_assert(static_cast<int>(DataType::f64) == ncclFloat64);
static_assert(static_cast<int>(DataType::bf16) == ncclBfloat16);
static_assert(static_cast<int>(Reduction::sum) == ncclSum);
static_assert(static_cast<int>(Reduction::product) == ncclProd);
static_assert(static_cast<int>(Reduction::max) == ncclMax);
static_assert(static_cast<int>(Reduction::min) == ncclMin);
static_assert(static_cast<int>(Reduction::average) == ncclAvg);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

Result result(ncclResult_t value) {
  return static_cast<Result>(value);
}
ncclDataType_t type(DataType value) {
  return static_cast<ncclDataType_t>(value);
}
ncclRedOp_t reduction(Reduction value) {
  return static_cast<ncclRedOp_t>(value);
}
ncclComm_t handle(Communicator communicator) {
  return reinterpret_cast<ncclComm_t>(communicator);
}
ncclComm_t* slot(Communicator* communicator) {
  static_assert(sizeof(Communicator) == sizeof(ncclComm_t));
  return reinterpret_cast<ncclComm_t*>(communicator);
}
cudaStream_t handle(DeviceStream stream) {
  return reinterpret_cast<cudaStream_t>(stream);
}

/// Every communicator's: calls return at once, and are asked after.
ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// NCCL's functions. It is opened at its first use, not linked: programs of the job start on
/// machines without it, and without a GPU.
struct Library {
  decltype(&::ncclGetVersion) get_version;
  decltype(&::ncclGetErrorString) get_error_string;
  decltype(&::ncclGetLastError) get_last_error;
  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRankConfig) comm_init_rank_config;
  decltype(&::ncclCommSplit) comm_split;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error;
  decltype(&::ncclCommFinalize) comm_finalize;
  decltype(&::ncclCommDestroy) comm_destroy;
  decltype(&::ncclCommAbort) comm_abort;
  decltype(&::ncclRedOpCreatePreMulSum) red_op_create_premul_sum;
  decltype(&::ncclRedOpDestroy) red_op_destroy;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;
  decltype(&::ncclAllReduce) all_reduce;
  decltype(&::ncclBroadcast) broadcast;
  decltype(&::ncclReduce) reduce;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclReduceScatter) reduce_scatter;
  decltype(&::ncclSend) send;
  decltype(&::ncclRecv) recv;
};

Error unusable(std::string why) {
  return Error(ErrorCode::kUnavailable, "backend 'nccl' finds no NCCL", std::move(why),
               "install NCCL 2.18 or later, or name its folder in LD_LIBRARY_PATH");
}

/// The library by the loader's search; else where the toolkit was when this was built.
DynamicLibrary open_library() {
  DynamicLibrary library({"libnccl.so.2", DTRUN_NCCL_LIBRARY});
  if (!library.opened()) throw unusable(library.reason());
  return library;
}

template <typename Function>
void load(const DynamicLibrary& library, const char* name, Function& function) {
  if (!library.find(name, function)) throw unusable(fmt::format("the library has no {}", name));
}

Library load_all() {
  const DynamicLibrary library = open_library();
  Library nccl{};
  load(library, "ncclGetVersion", nccl.get_version);
  load(library, "ncclGetErrorString", nccl.get_error_string);
  load(library, "ncclGetLastError", nccl.get_last_error);
  load(library, "ncclGetUniqueId", nccl.get_unique_id);
  load(library, "ncclCommInitRankConfig", nccl.comm_init_rank_config);
  load(library, "ncclCommSplit", nccl.comm_split);
  load(library, "ncclCommGetAsyncError", nccl.comm_get_async_error);
  load(library, "ncclCommFinalize", nccl.comm_finalize);
  load(library, "ncclCommDestroy", nccl.comm_destroy);
  load(library, "ncclCommAbort", nccl.comm_abort);
  load(library, "ncclRedOpCreatePreMulSum", nccl.red_op_create_premul_sum);
  load(library, "ncclRedOpDestroy", nccl.red_op_destroy);
  load(library, "ncclGroupStart", nccl.group_start);
  load(library, "ncclGroupEnd", nccl.group_end);
  load(library, "ncclAllReduce", nccl.all_reduce);
  load(library, "ncclBroadcast", nccl.broadcast);
  load(library, "ncclReduce", nccl.reduce);
  load(library, "ncclAllGather", nccl.all_gather);
  load(library, "ncclReduceScatter", nccl.reduce_scatter);
  load(library, "ncclSend", nccl.send);
  load(library, "ncclRecv", nccl.recv);
  return nccl;
}

const Library& nccl() {
  static const Library loaded = load_all();
  return loaded;
}

class RealNcclApi : public NcclApi {
 public:
  int version() override {
    int number = 0;
    return nccl().get_version(&number) == ncclSuccess ? number : 0;
  }
  std::string error_text(Result value) override {
    const char* text = nccl().get_error_string(static_cast<ncclResult_t>(value));
    return text == nullptr ? "" : text;
  }
  std::string last_error(Communicator communicator) override {
    const char* text = nccl().get_last_error(handle(communicator));
    return text == nullptr ? "" : text;
  }

  Result unique_id(UniqueId& id) override {
    ncclUniqueId made;
    const ncclResult_t code = nccl().get_unique_id(&made);
    std::memcpy(&id, &made, sizeof(id));
    return result(code);
  }
  Result init_rank(Communicator* made, int size, const UniqueId& id, int rank) override {
    ncclUniqueId given;
    std::memcpy(&given, &id, sizeof(given));
    ncclConfig_t config = non_blocking();
    return result(nccl().comm_init_rank_config(slot(made), size, given, rank, &config));
  }
  Result split(Communicator parent, std::optional<int> color, int key,
               Communicator* made) override {
    ncclConfig_t config = non_blocking();
    return result(nccl().comm_split(handle(parent), color.value_or(NCCL_SPLIT_NOCOLOR), key,
                                    slot(made), &config));
  }
  Result async_error(Communicator communicator, Result& state) override {
    ncclResult_t value = ncclSuccess;
    const ncclResult_t code = nccl().comm_get_async_error(handle(communicator), &value);
    state = result(value);
    return result(code);
  }
  Result finalize(Communicator communicator) override {
    return result(nccl().comm_finalize(handle(communicator)));
  }
  Result destroy(Communicator communicator) override {
    return result(nccl().comm_destroy(handle(communicator)));
  }
  Result abort(Communicator communicator) override {
    return result(nccl().comm_abort(handle(communicator)));
  }

  Result make_premul_sum(Reduction* made, const void* factor, DataType data_type,
                         Communicator communicator) override {
    // The factor is on the host and copied by NCCL before it returns (ncclScalarHostImmediate).
    ncclRedOp_t number = ncclSum;
    const ncclResult_t code =
        nccl().red_op_create_premul_sum(&number, const_cast<void*>(factor), type(data_type),
                                        ncclScalarHostImmediate, handle(communicator));
    *made = static_cast<Reduction>(number);
    return result(code);
  }
  Result destroy_reduction(Reduction made, Communicator communicator) override {
    return result(nccl().red_op_destroy(reduction(made), handle(communicator)));
  }

  Result group_start() override { return result(nccl().group_start()); }
  Result group_end() override { return result(nccl().group_end()); }
  Result all_reduce(Source source, void* target, Reduction op, Communicator communicator,
                    DeviceStream stream) override {
    return result(nccl().all_reduce(source.data, target, source.count, type(source.type),
                                    reduction(op), handle(communicator), handle(stream)));
  }
  Result broadcast(Source source, void* target, int root, Communicator communicator,
                   DeviceStream stream) override {
    return result(nccl().broadcast(source.data, target, source.count, type(source.type), root,
                                   handle(communicator), handle(stream)));
  }
  Result reduce(Source source, void* target, Reduction op, int root, Communicator communicator,
                DeviceStream stream) override {
    return result(nccl().reduce(source.data, target, source.count, type(source.type), reduction(op),
                                root, handle(communicator), handle(stream)));
  }
  Result all_gather(Source source, void* target, Communicator communicator,
                    DeviceStream stream) override {
    return result(nccl().all_gather(source.data, target, source.count, type(source.type),
                                    handle(communicator), handle(stream)));
  }
  Result reduce_scatter(Source source, void* target, Reduction op, Communicator communicator,
                        DeviceStream stream) override {
    return result(nccl().reduce_scatter(source.data, target, source.count, type(source.type),
                                        reduction(op), handle(communicator), handle(stream)));
  }
  Result send(Source source, int peer, Communicator communicator, DeviceStream stream) override {
    return result(nccl().send(source.data, source.count, type(source.type), peer,
                              handle(communicator), handle(stream)));
  }
  Result receive(void* target, std::size_t count, DataType data_type, int peer,
                 Communicator communicator, DeviceStream stream) override {
    return result(
        nccl().recv(target, count, type(data_type), peer, handle(communicator), handle(stream)));
  }
};

}  // namespace

std::shared_ptr<NcclApi> real_nccl_api() {
  // Opened now: without NCCL this throws, and not the first call.
  nccl();
  return std::make_shared<RealNcclApi>();
}

}  // namespace dtrun::collectives::nccl
