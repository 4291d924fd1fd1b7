#include "mpi/mpi_library.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "mpi/mpi_reduction.h"

namespace dtrun::collectives::mpi {

using adapter::GroupFailed;
using adapter::Interrupted;
using adapter::Late;
using adapter::PeerLeft;
using base::Deadline;

namespace {

/// MPI counts in int.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;
/// A tag of MPI's is a tag of ours and a kind.
constexpr std::uint32_t kKinds = 8;
constexpr int kAlarmTag = kKinds - 1;
/// A failure's text is shorter.
constexpr std::size_t kLongestAlarm = 65536;
/// What a peer has sent before it left may still be on its way when its leaving is known: they go
/// different ways.
constexpr auto kLeavingGrace = std::chrono::milliseconds(100);
/// An alarm is small, and on its way at once, unless its reader has died.
constexpr auto kAlarmPatience = std::chrono::milliseconds(500);
constexpr char kLeft = 'L';
constexpr char kFailed = 'F';

class MpiMessage : public MessageInFlight {
 public:
  MpiMessage(MpiLibrary& library, Requests requests, int peer)
      : library_(library), requests_(std::move(requests)), peer_(peer) {}

  int wait(Deadline deadline) override {
    const int source = library_.await(requests_, peer_, deadline);
    return peer_ < 0 ? source : peer_;
  }

 private:
  MpiLibrary& library_;
  Requests requests_;
  const int peer_;
};

}  // namespace

/// Between two questions: at first at once, later seldom, for there may be nothing to get for long.
/// Never by yielding: on a busy machine that gives a whole time slice away, where a timed wait is
/// over soon.
class MpiLibrary::Pace {
 public:
  void pause(MpiLibrary& library) {
    constexpr auto kAtOnce = std::chrono::microseconds(50);
    constexpr auto kShortest = std::chrono::microseconds(20);
    constexpr auto kLongest = std::chrono::microseconds(500);
    const auto waited = Deadline::Clock::now() - begun_;
    if (waited < kAtOnce) return;
    const auto pause = std::clamp<Deadline::Duration>(waited / 16, kShortest, kLongest);
    std::unique_lock lock(library.mutex_);
    if (!library.stopped_) library.changed_.wait_for(lock, pause);
  }

 private:
  const Time begun_ = Deadline::Clock::now();
};

MpiLibrary::MpiLibrary(MpiProcess& process, MPI_Comm communicator)
    : process_(process),
      api_(process.api()),
      communicator_(communicator),
      alarm_(api_.no_request),
      alarm_text_(std::make_shared<std::vector<char>>(kLongestAlarm)) {
  process_.require(api_.comm_rank(communicator_, &rank_), "MPI_Comm_rank");
  process_.require(api_.comm_size(communicator_, &size_), "MPI_Comm_size");
  listen();
  process_.group_joined();
}

// The communicator stays: giving it back is a collective, and not all may come.
MpiLibrary::~MpiLibrary() {
  leave();
}

// ---- messages and collectives

std::uint32_t MpiLibrary::largest_tag() const {
  return static_cast<std::uint32_t>(process_.largest_tag()) / kKinds - 1;
}

int MpiLibrary::tag_of(MessageKind kind, std::uint32_t tag) const {
  return static_cast<int>(tag * kKinds + static_cast<std::uint32_t>(kind));
}

std::unique_ptr<MessageInFlight> MpiLibrary::send(const void* data, std::size_t bytes, int peer,
                                                  MessageKind kind, std::uint32_t tag) {
  Requests requests;
  const auto* begin = static_cast<const std::byte*>(data);
  for (std::size_t done = 0; done < bytes; done += kMostBytes) {
    const int count = static_cast<int>(std::min(kMostBytes, bytes - done));
    requests.push_back(api_.no_request);
    process_.require(api_.isend(begin + done, count, api_.bytes_1, peer, tag_of(kind, tag),
                                communicator_, &requests.back()),
                     "MPI_Isend");
  }
  return std::make_unique<MpiMessage>(*this, std::move(requests), peer);
}

std::unique_ptr<MessageInFlight> MpiLibrary::receive(void* data, std::size_t bytes, int peer,
                                                     MessageKind kind, std::uint32_t tag) {
  Requests requests;
  auto* begin = static_cast<std::byte*>(data);
  for (std::size_t done = 0; done < bytes; done += kMostBytes) {
    const int count = static_cast<int>(std::min(kMostBytes, bytes - done));
    requests.push_back(api_.no_request);
    process_.require(api_.irecv(begin + done, count, api_.bytes_1, peer < 0 ? MPI_ANY_SOURCE : peer,
                                tag_of(kind, tag), communicator_, &requests.back()),
                     "MPI_Irecv");
  }
  return std::make_unique<MpiMessage>(*this, std::move(requests), peer);
}

void MpiLibrary::broadcast(Buffer buffer, int source, Deadline deadline) {
  collective(buffer, "MPI_Ibcast", deadline, [&](std::byte* data, int count, MPI_Request* request) {
    return api_.ibcast(data, count, item_type(api_, buffer.dtype), source, communicator_, request);
  });
}

void MpiLibrary::all_reduce(Buffer buffer, tensors::CombineOp op, Deadline deadline) {
  const MPI_Op how = reduction(process_, op, buffer.dtype);
  collective(buffer, "MPI_Iallreduce", deadline,
             [&](std::byte* data, int count, MPI_Request* request) {
               return api_.iallreduce(MPI_IN_PLACE, data, count, item_type(api_, buffer.dtype), how,
                                      communicator_, request);
             });
}

void MpiLibrary::reduce(Buffer input, Buffer output, int destination, tensors::CombineOp op,
                        Deadline deadline) {
  const MPI_Op how = reduction(process_, op, input.dtype);
  const auto* from = static_cast<const std::byte*>(input.data);
  auto* const to = static_cast<std::byte*>(output.data);
  collective(output, "MPI_Ireduce", deadline,
             [&](std::byte* data, int count, MPI_Request* request) {
               const void* source = from + (data - to);
               if (source == data && rank_ == destination) source = MPI_IN_PLACE;
               return api_.ireduce(source, data, count, item_type(api_, input.dtype), how,
                                   destination, communicator_, request);
             });
}

void MpiLibrary::collective(Buffer buffer, const char* call, Deadline deadline, const Part& begin) {
  const std::size_t item = tensors::item_size(buffer.dtype);
  auto* const data = static_cast<std::byte*>(buffer.data);
  for (std::size_t done = 0; done < buffer.bytes(); done += kMostBytes) {
    const std::size_t bytes = std::min(kMostBytes, buffer.bytes() - done);
    Requests requests = {api_.no_request};
    process_.require(begin(data + done, static_cast<int>(bytes / item), requests.data()), call);
    await(requests, kAllPeers, deadline);
  }
}

std::unique_ptr<adapter::MessageLibrary> MpiLibrary::split(const GroupOptions&,
                                                           const std::vector<int>& ranks,
                                                           int list_index, Deadline) {
  if (ranks.empty()) return nullptr;
  return std::make_unique<MpiLibrary>(process_,
                                      process_.communicator(communicator_, ranks, list_index));
}

int MpiLibrary::await(Requests& requests, int peer, Deadline deadline) {
  std::vector<MPI_Status> statuses(requests.size());
  Pace pace;
  for (;;) {
    int done = 0;
    const int result =
        api_.testall(static_cast<int>(requests.size()), requests.data(), &done, statuses.data());
    process_.require(result == MPI_ERR_IN_STATUS ? statuses.back().MPI_ERROR : result,
                     "MPI_Testall");
    if (done != 0) return statuses.back().MPI_SOURCE;
    hear();
    throw_if_over(peer);
    if (deadline.expired()) throw Late{peer < 0 ? std::vector<int>() : std::vector<int>{peer}};
    pace.pause(*this);
  }
}

// ---- failing and leaving

void MpiLibrary::throw_if_over(int peer) {
  const std::scoped_lock lock(mutex_);
  if (stopped_) throw Interrupted{};
  if (verdict_) throw GroupFailed{*verdict_};
  const auto is_settled = [](Time heard) { return Deadline::Clock::now() - heard > kLeavingGrace; };
  if (peer >= 0) {
    const auto found = left_.find(peer);
    if (found != left_.end() && is_settled(found->second)) throw PeerLeft{peer};
  } else if (peer == kAnyPeer && left_.size() + 1 == static_cast<std::size_t>(size_)) {
    if (std::all_of(left_.begin(), left_.end(),
                    [&](const auto& one) { return is_settled(one.second); }))
      throw PeerLeft{left_.begin()->first};
  }
}

void MpiLibrary::listen() {
  process_.require(api_.irecv(alarm_text_->data(), static_cast<int>(alarm_text_->size()),
                              api_.bytes_1, MPI_ANY_SOURCE, kAlarmTag, communicator_, &alarm_),
                   "MPI_Irecv");
}

void MpiLibrary::hear() {
  const std::unique_lock lock(hearing_, std::try_to_lock);
  if (!lock) return;
  while (alarm_ != api_.no_request) {
    int came = 0;
    MPI_Status status;
    process_.require(api_.testall(1, &alarm_, &came, &status), "MPI_Testall");
    if (came == 0) return;
    int length = 0;
    process_.require(api_.get_count(&status, api_.bytes_1, &length), "MPI_Get_count");
    note(status.MPI_SOURCE, {alarm_text_->data(), static_cast<std::size_t>(length)});
    listen();
  }
}

void MpiLibrary::note(int peer, const std::string& word) {
  const std::scoped_lock lock(mutex_);
  if (word.front() == kLeft) {
    left_.emplace(peer, Deadline::Clock::now());
  } else if (!verdict_) {
    verdict_ = GroupFailure::decode(word.substr(1));
  }
}

void MpiLibrary::fail(const GroupFailure& failure) {
  stop(kFailed + failure.encode(), MpiProcess::End::failed);
}

void MpiLibrary::leave() {
  stop(std::string(1, kLeft), MpiProcess::End::clean);
}

void MpiLibrary::stop(const std::string& word, MpiProcess::End end) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    if (verdict_) end = MpiProcess::End::failed;
    changed_.notify_all();
  }
  tell_all(word);
  {
    const std::scoped_lock lock(hearing_);
    // From now on alarms come to nobody. One that is half here ends in kept memory.
    process_.keep(alarm_text_);
    if (alarm_ != api_.no_request && api_.cancel(&alarm_) == MPI_SUCCESS)
      api_.request_free(&alarm_);
  }
  process_.group_left(end);
}

// Never throws: who cannot be told has gone.
void MpiLibrary::tell_all(const std::string& word) {
  const auto text = std::make_shared<std::string>(word);
  process_.keep(text);
  Requests requests(static_cast<std::size_t>(size_), api_.no_request);
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_)
      api_.isend(text->data(), static_cast<int>(text->size()), api_.bytes_1, peer, kAlarmTag,
                 communicator_, &requests[static_cast<std::size_t>(peer)]);
  const Deadline deadline = Deadline::after(kAlarmPatience);
  int done = 0;
  while (done == 0 && !deadline.expired()) {
    if (api_.testall(size_, requests.data(), &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return;
    if (done == 0) std::this_thread::yield();
  }
}

}  // namespace dtrun::collectives::mpi
