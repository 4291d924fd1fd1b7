// The nccl backend: collectives on CUDA tensors, by NCCL. The only file that knows NCCL. A call
// blocks until its result is there; asynchronous ones are waited for through a host function that
// the stream calls at their end, so that a wait can have a deadline, which NCCL's own calls lack.
// What NCCL does is not checked against the peers' fingerprints: ranks that disagree meet their
// deadline.
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <nccl.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/tensor/cuda.h"
#include "make_backend.h"
#include "membership.h"

namespace dtrun::collectives {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using tensors::DType;

namespace {

void check_nccl(ncclResult_t result, std::string_view action) {
  if (result == ncclSuccess) return;
  throw Error(result == ncclInvalidUsage ? ErrorCode::kUnavailable : ErrorCode::kSystem,
              fmt::format("nccl cannot {}: {}", action, ncclGetErrorString(result)),
              ncclGetLastError(nullptr),
              "NCCL refuses several ranks on one GPU; set NCCL_DEBUG=WARN to hear more");
}

void check_cuda(cudaError_t result, std::string_view action) {
  if (result != cudaSuccess)
    throw Error(ErrorCode::kSystem,
                fmt::format("cuda cannot {}: {}", action, cudaGetErrorString(result)));
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::f16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i64:
      return ncclInt64;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
    case DType::boolean:
      return ncclUint8;
  }
  return ncclUint8;
}

/// bool has bytes 0 and 1: "or" is their maximum, "and" their minimum.
ncclRedOp_t nccl_op(ReduceOp op, DType dtype) {
  const bool boolean = dtype == DType::boolean;
  switch (op) {
    case ReduceOp::sum:
      return boolean ? ncclMax : ncclSum;
    case ReduceOp::avg:
      return ncclAvg;
    case ReduceOp::product:
      return boolean ? ncclMin : ncclProd;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::bor:
      if (boolean) return ncclMax;
      break;
    case ReduceOp::band:
      if (boolean) return ncclMin;
      break;
    case ReduceOp::bxor:
      break;
  }
  throw Error(
      ErrorCode::kUnavailable,
      fmt::format("nccl has no {} of {} tensors", reduce_op_name(op), tensors::dtype_name(dtype)),
      "", "move the tensors to the cpu, and use a group of backend 'cpu'");
}

/// The thread's current device, for the guard's life.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index) {
    check_cuda(cudaGetDevice(&previous_), "tell the current device");
    check_cuda(cudaSetDevice(index), fmt::format("use device {}", index));
  }
  ~CurrentDevice() { cudaSetDevice(previous_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int previous_ = 0;
};

/// A stream that is ordered with the default one, on which tensors are computed.
class Stream {
 public:
  Stream() { check_cuda(cudaStreamCreate(&stream_), "make a stream"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Communicator {
 public:
  /// Collective over the members. @throws Error
  Communicator(ncclUniqueId id, int rank, int size) {
    check_nccl(ncclCommInitRank(&communicator_, size, id, rank), "make a communicator");
  }
  ~Communicator() {
    if (communicator_ != nullptr) ncclCommDestroy(communicator_);
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ncclComm_t get() const { return communicator_; }
  /// Ends what runs, here only; never waits for a peer.
  void abort() {
    if (communicator_ != nullptr) ncclCommAbort(std::exchange(communicator_, nullptr));
  }

 private:
  ncclComm_t communicator_ = nullptr;
};

/// Tells that the stream has come to a point.
class Arrival {
 public:
  void signal() {
    const std::scoped_lock lock(mutex_);
    arrived_ = true;
    changed_.notify_all();
  }
  bool arrived() {
    const std::scoped_lock lock(mutex_);
    return arrived_;
  }
  /// @return whether it came before the deadline
  bool wait(Deadline deadline) {
    std::unique_lock lock(mutex_);
    const auto there = [this] { return arrived_; };
    if (!deadline.is_never()) return changed_.wait_until(lock, deadline.when(), there);
    changed_.wait(lock, there);
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool arrived_ = false;
};

/// What a backend and its operations in flight share.
struct NcclState {
  /// On the current device, which is that one.
  NcclState(int device_index, ncclUniqueId id, int group_rank, int group_size)
      : device(device_index), communicator(id, group_rank, group_size) {}

  const int device;
  Stream stream;
  Communicator communicator;
  std::mutex mutex;
  std::exception_ptr failure;  ///< the first; guarded by mutex

  void fail(const Error& error) {
    const std::scoped_lock lock(mutex);
    if (failure) return;
    failure = std::make_exception_ptr(error);
    communicator.abort();
  }
  /// No calls any more; what is under way ends by itself.
  void leave() {
    const std::scoped_lock lock(mutex);
    if (!failure)
      failure =
          std::make_exception_ptr(Error(ErrorCode::kAborted, "this rank has left its nccl group"));
  }
  void throw_if_failed() {
    const std::scoped_lock lock(mutex);
    if (failure) std::rethrow_exception(failure);
  }
};

class NcclWork : public Work::State {
 public:
  NcclWork(std::shared_ptr<NcclState> state, Call call)
      : state_(std::move(state)), call_(std::move(call)) {}
  // The stream still reads the buffers and calls arrival_.
  ~NcclWork() override {
    if (enqueued_) arrival_.wait(Deadline::never());
  }

  void enqueue_arrival() {
    const auto signal = [](void* arrival) { static_cast<Arrival*>(arrival)->signal(); };
    check_cuda(cudaLaunchHostFunc(state_->stream.get(), signal, &arrival_), "enqueue a signal");
    enqueued_ = true;
  }

  void wait(Deadline deadline) override {
    if (!arrival_.wait(deadline.earlier(call_.deadline))) {
      if (!call_.deadline.expired())
        throw Error(ErrorCode::kTimeout, call_.fingerprint.describe() + " is not done yet",
                    "the wait had a deadline of its own; the operation goes on");
      time_out();
    }
    state_->throw_if_failed();
    finish();
  }
  bool is_completed() override {
    if (!arrival_.arrived()) return false;
    finish();
    return true;
  }
  std::exception_ptr exception() override {
    const std::scoped_lock lock(state_->mutex);
    return arrival_.arrived() ? state_->failure : nullptr;
  }

 private:
  void time_out() {
    ncclResult_t cause = ncclSuccess;
    {
      const std::scoped_lock lock(state_->mutex);
      if (state_->communicator.get() != nullptr)
        ncclCommGetAsyncError(state_->communicator.get(), &cause);
    }
    state_->fail(Error(ErrorCode::kTimeout,
                       call_.fingerprint.describe() + " of backend 'nccl' timed out",
                       cause == ncclSuccess ? "a rank has not come, or has called something else"
                                            : ncclGetErrorString(cause),
                       "look at the other ranks' output"));
  }
  /// CUDA calls are forbidden in the stream's host function: results are copied out here.
  void finish() {
    const std::scoped_lock lock(mutex_);
    if (const auto finish_once = std::exchange(call_.finish, nullptr)) finish_once();
    call_.keep_alive.reset();
  }

  const std::shared_ptr<NcclState> state_;
  std::mutex mutex_;
  Call call_;
  Arrival arrival_;
  bool enqueued_ = false;
};

class NcclBackend : public Backend {
 public:
  NcclBackend(std::shared_ptr<NcclState> state, int rank, int size)
      : state_(std::move(state)), rank_(rank), size_(size) {}
  ~NcclBackend() override { shutdown(); }

  std::string name() const override { return "nccl"; }
  tensors::DeviceType device_type() const override { return tensors::DeviceType::cuda; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Work broadcast(Buffer buffer, int source, Call call) override {
    return run(std::move(call), "broadcast", [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclBroadcast(buffer.data, buffer.data, count_of(buffer), nccl_type(buffer.dtype),
                           source, communicator, stream);
    });
  }
  Work all_reduce(Buffer buffer, ReduceOp op, Call call) override {
    const ncclRedOp_t combine = nccl_op(op, buffer.dtype);
    return run(std::move(call), "all_reduce", [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclAllReduce(buffer.data, buffer.data, count_of(buffer), nccl_type(buffer.dtype),
                           combine, communicator, stream);
    });
  }
  Work reduce(Buffer input, Buffer output, int destination, ReduceOp op, Call call) override {
    const ncclRedOp_t combine = nccl_op(op, input.dtype);
    return run(std::move(call), "reduce", [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclReduce(input.data, output.data, count_of(input), nccl_type(input.dtype), combine,
                        destination, communicator, stream);
    });
  }
  Work all_gather(Buffer, std::vector<Buffer>, Call) override { refuse("all_gather"); }
  Work gather(Buffer, std::vector<Buffer>, int, Call) override { refuse("gather"); }
  Work scatter(Buffer, std::vector<Buffer>, int, Call) override { refuse("scatter"); }
  Work reduce_scatter(Buffer, std::vector<Buffer>, ReduceOp, Call) override {
    refuse("reduce_scatter");
  }
  Work all_to_all(std::vector<Buffer>, std::vector<Buffer>, Call) override { refuse("all_to_all"); }
  Work barrier(Call) override { refuse("barrier"); }
  Work send(Buffer, int, std::uint32_t, Call) override { refuse("send"); }
  Work receive(Buffer, int, std::uint32_t, Call) override { refuse("recv"); }
  std::unique_ptr<Backend> split(const std::vector<int>&, int, const std::string&, Call) override {
    refuse("split");
  }

  /// NCCL has no word for the peers: they meet their deadline.
  void reject(const Fingerprint&, const Error& error) override {
    if (size_ > 1) state_->fail(error);
  }
  TransportCounters counters() const override { return {}; }
  void shutdown() override { state_->leave(); }

 private:
  [[noreturn]] static void refuse(std::string_view what) {
    throw Error(ErrorCode::kUnavailable, fmt::format("backend 'nccl' has no {} yet", what), "",
                "move the tensors to the cpu, and use a group of backend 'cpu'");
  }
  static std::size_t count_of(const Buffer& buffer) {
    return static_cast<std::size_t>(buffer.count);
  }

  template <typename Enqueue>
  Work run(Call call, std::string_view what, Enqueue enqueue) {
    state_->throw_if_failed();
    const bool async = call.async;
    const CurrentDevice device(state_->device);
    auto work = std::make_shared<NcclWork>(state_, std::move(call));
    check_nccl(enqueue(state_->communicator.get(), state_->stream.get()), what);
    work->enqueue_arrival();
    if (!async) work->wait(Deadline::never());
    return Work(std::move(work));
  }

  const std::shared_ptr<NcclState> state_;
  const int rank_;
  const int size_;
};

/// Rank 0 makes the id, the store carries it.
ncclUniqueId share_id(const GroupOptions& options, Deadline deadline) {
  constexpr const char* kKey = "nccl_id";
  ncclUniqueId id{};
  if (options.rank == 0) {
    check_nccl(ncclGetUniqueId(&id), "make an id");
    options.store->set(kKey, {reinterpret_cast<const char*>(&id), sizeof(id)});
    return id;
  }
  const std::string text = options.store->get(kKey, deadline);
  if (text.size() != sizeof(id))
    throw Error(ErrorCode::kProtocol, "the store holds no nccl id of this version");
  std::memcpy(&id, text.data(), sizeof(id));
  return id;
}

}  // namespace

std::optional<Error> nccl_obstacle() {
  if (tensors::cuda::device_count() > 0) return std::nullopt;
  return Error(ErrorCode::kUnavailable,
               "backend 'nccl' needs one GPU per rank: this machine has none",
               "no CUDA device, or no driver, was found", "start the ranks where GPUs are");
}

std::unique_ptr<Backend> make_nccl_backend(const GroupOptions& options) {
  const int devices = tensors::cuda::device_count();
  if (devices <= options.local_rank)
    throw Error(ErrorCode::kUnavailable,
                fmt::format("backend 'nccl' needs one GPU per rank: local rank {} of this machine "
                            "has none, there {} {}",
                            options.local_rank, devices == 1 ? "is" : "are", devices),
                "", "start fewer ranks on this machine, or use backend 'cpu'");
  const Deadline deadline = Deadline::after(options.timeout);
  Card mine;
  mine.global_rank = options.global_ranks[static_cast<std::size_t>(options.rank)];
  exchange_cards(options, mine, deadline);
  const int size = static_cast<int>(options.global_ranks.size());
  const CurrentDevice device(options.local_rank);
  auto state = std::make_shared<NcclState>(options.local_rank, share_id(options, deadline),
                                           options.rank, size);
  return std::make_unique<NcclBackend>(std::move(state), options.rank, size);
}

}  // namespace dtrun::collectives
