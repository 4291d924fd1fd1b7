// The one file that knows NCCL.
#include <nccl.h>

#include <cstring>

#include "nccl/nccl_api.h"

namespace dtrun::collectives::nccl {

namespace {

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

class RealNcclApi : public NcclApi {
 public:
  int version() override {
    int number = 0;
    return ncclGetVersion(&number) == ncclSuccess ? number : 0;
  }
  std::string error_text(Result value) override {
    const char* text = ncclGetErrorString(static_cast<ncclResult_t>(value));
    return text == nullptr ? "" : text;
  }
  std::string last_error(Communicator communicator) override {
    const char* text = ncclGetLastError(handle(communicator));
    return text == nullptr ? "" : text;
  }

  Result unique_id(UniqueId& id) override {
    ncclUniqueId made;
    const ncclResult_t code = ncclGetUniqueId(&made);
    std::memcpy(&id, &made, sizeof(id));
    return result(code);
  }
  Result init_rank(Communicator* made, int size, const UniqueId& id, int rank) override {
    ncclUniqueId given;
    std::memcpy(&given, &id, sizeof(given));
    ncclConfig_t config = non_blocking();
    return result(ncclCommInitRankConfig(slot(made), size, given, rank, &config));
  }
  Result split(Communicator parent, std::optional<int> color, int key,
               Communicator* made) override {
    ncclConfig_t config = non_blocking();
    return result(ncclCommSplit(handle(parent), color.value_or(NCCL_SPLIT_NOCOLOR), key, slot(made),
                                &config));
  }
  Result async_error(Communicator communicator, Result& state) override {
    ncclResult_t value = ncclSuccess;
    const ncclResult_t code = ncclCommGetAsyncError(handle(communicator), &value);
    state = result(value);
    return result(code);
  }
  Result finalize(Communicator communicator) override {
    return result(ncclCommFinalize(handle(communicator)));
  }
  Result destroy(Communicator communicator) override {
    return result(ncclCommDestroy(handle(communicator)));
  }
  Result abort(Communicator communicator) override {
    return result(ncclCommAbort(handle(communicator)));
  }

  Result group_start() override { return result(ncclGroupStart()); }
  Result group_end() override { return result(ncclGroupEnd()); }
  Result all_reduce(Source source, void* target, Reduction op, Communicator communicator,
                    DeviceStream stream) override {
    return result(ncclAllReduce(source.data, target, source.count, type(source.type), reduction(op),
                                handle(communicator), handle(stream)));
  }
  Result broadcast(Source source, void* target, int root, Communicator communicator,
                   DeviceStream stream) override {
    return result(ncclBroadcast(source.data, target, source.count, type(source.type), root,
                                handle(communicator), handle(stream)));
  }
  Result reduce(Source source, void* target, Reduction op, int root, Communicator communicator,
                DeviceStream stream) override {
    return result(ncclReduce(source.data, target, source.count, type(source.type), reduction(op),
                             root, handle(communicator), handle(stream)));
  }
  Result all_gather(Source source, void* target, Communicator communicator,
                    DeviceStream stream) override {
    return result(ncclAllGather(source.data, target, source.count, type(source.type),
                                handle(communicator), handle(stream)));
  }
  Result reduce_scatter(Source source, void* target, Reduction op, Communicator communicator,
                        DeviceStream stream) override {
    return result(ncclReduceScatter(source.data, target, source.count, type(source.type),
                                    reduction(op), handle(communicator), handle(stream)));
  }
  Result send(Source source, int peer, Communicator communicator, DeviceStream stream) override {
    return result(ncclSend(source.data, source.count, type(source.type), peer, handle(communicator),
                           handle(stream)));
  }
  Result receive(void* target, std::size_t count, DataType data_type, int peer,
                 Communicator communicator, DeviceStream stream) override {
    return result(
        ncclRecv(target, count, type(data_type), peer, handle(communicator), handle(stream)));
  }
};

}  // namespace

std::shared_ptr<NcclApi> real_nccl_api() {
  return std::make_shared<RealNcclApi>();
}

}  // namespace dtrun::collectives::nccl
