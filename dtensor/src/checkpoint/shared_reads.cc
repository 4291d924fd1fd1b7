#include "checkpoint/shared_reads.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "checkpoint/read_ahead.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/safetensors_header.h"

namespace dtrun::dtensor::dcp {

using collectives::P2POp;
using tensors::DType;
using tensors::LocalTensor;

namespace {

/// Of nobody else in the group.
constexpr std::uint32_t kTag = 0x4c6f6164;

LocalTensor bytes_of(const LocalTensor& all, std::uint64_t begin, std::uint64_t count) {
  return all.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(count));
}

}  // namespace

/// Gives the blocks of this rank's parts in their order, read ahead where they are many.
class SharedReads::Reader {
 public:
  Reader(const SharedReads& shared, FileCalls& files, const std::string& folder, PageCache cache)
      : shared_(shared), files_(files), folder_(folder), cache_(cache) {
    for (const Round& round : shared.rounds_[static_cast<std::size_t>(shared.group_.rank())]) {
      all_.insert(all_.end(), round.parts.begin(), round.parts.end());
      bytes_ += round.bytes;
    }
  }

  /// Valid until the next call.
  std::string_view block(const SharedPart& part, std::uint64_t index) {
    const SavedChunk& chunk = shared_.chunk_of(part);
    if (!reader_ || file_ != chunk.file) {
      end_file();
      file_ = chunk.file;
      reader_ = std::make_unique<ShardReader>(files_, folder_, shared_.manifest_.files[file_],
                                              FileHeader::verified, cache_);
    }
    if (!std::exchange(has_begun_, true) && bytes_ >= kLeastReadAhead && !reader_->is_cached())
      read_ahead();
    return reader_->block(shared_.manifest_.tensors[part.tensor], chunk, index,
                          ahead_ ? &*ahead_ : nullptr);
  }
  std::uint64_t bytes_read() {
    end_file();
    return bytes_read_;
  }

 private:
  void end_file() {
    if (reader_) bytes_read_ += reader_->bytes_read();
    reader_.reset();
  }
  void read_ahead() {
    ahead_.emplace(files_, folder_, shared_.manifest_, cache_,
                   BlockWalk(shared_.manifest_.files.size()),
                   [this, next = std::size_t{0}](BlockWalk& walk) mutable {
                     if (next == all_.size()) return false;
                     const SharedPart& part = shared_.parts_[all_[next++]];
                     const SavedTensor& tensor = shared_.manifest_.tensors[part.tensor];
                     const SavedChunk& chunk = shared_.chunk_of(part);
                     const ByteRuns all(chunk.box, chunk.box, tensors::item_size(tensor.dtype));
                     walk.go_on(tensor, chunk, all.within(part.begin, part.end));
                     return true;
                   });
  }

  const SharedReads& shared_;
  FileCalls& files_;
  const std::string& folder_;
  const PageCache cache_;
  std::vector<std::size_t> all_;
  std::uint64_t bytes_ = 0, bytes_read_ = 0;
  std::unique_ptr<ShardReader> reader_;
  std::size_t file_ = 0;
  bool has_begun_ = false;
  std::optional<ReadAhead> ahead_;
};

SharedReads::SharedReads(const Manifest& manifest, const std::vector<std::vector<Wish>>& wishes,
                         std::vector<char*> memory, collectives::ProcessGroup group)
    : manifest_(manifest),
      wishes_(wishes),
      memory_(std::move(memory)),
      group_(std::move(group)),
      parts_(shared_parts(manifest, wishes)),
      rounds_(wishes.size()) {
  plan_rounds();
  allocate();
}

const SavedChunk& SharedReads::chunk_of(const SharedPart& part) const {
  return manifest_.tensors[part.tensor].chunks[part.chunk];
}

template <typename Use>
void SharedReads::each_wish(const SharedPart& part, int rank, std::uint64_t begin,
                            std::uint64_t end, const Use& use) const {
  const std::vector<Wish>& wishes = wishes_[static_cast<std::size_t>(rank)];
  const std::size_t item = tensors::item_size(manifest_.tensors[part.tensor].dtype);
  for (std::size_t i = 0; i < wishes.size(); ++i) {
    if (wishes[i].tensor != part.tensor) continue;
    use(i, ByteRuns(chunk_of(part).box, wishes[i].box, item).within(begin, end));
  }
}

void SharedReads::plan_rounds() {
  const auto ranks = static_cast<std::uint64_t>(
      std::ranges::count_if(wishes_, [](const auto& own) { return !own.empty(); }));
  const std::uint64_t most = most_round_bytes(ranks);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const SharedPart& part = parts_[i];
    std::vector<Round>& rounds = rounds_[static_cast<std::size_t>(part.reader)];
    const std::uint64_t bytes = part.end - part.begin;
    if (rounds.empty() || rounds.back().bytes + bytes > most) rounds.emplace_back();
    Round& round = rounds.back();
    round.parts.push_back(i);
    round.bytes += bytes;
    for (const int rank : part.wanters) {
      // Messages between other ranks are not this rank's: all ranks plan the same rounds, and each
      // sizes its own messages alone.
      if (rank == part.reader || (part.reader != group_.rank() && rank != group_.rank())) continue;
      Message& message = round.to[rank];
      message.parts.push_back(i);
      each_wish(part, rank, part.begin, part.end, [&](std::size_t, ByteRuns runs) {
        while (const std::optional<ByteRun> run = runs.next()) message.bytes += run->bytes;
      });
    }
    most_rounds_ = std::max(most_rounds_, rounds.size());
  }
}

void SharedReads::allocate() {
  const auto own = static_cast<std::size_t>(group_.rank());
  std::uint64_t sent = 0, received = 0;
  for (std::size_t number = 0; number < most_rounds_; ++number) {
    std::uint64_t out = 0, in = 0;
    for (std::size_t reader = 0; reader < rounds_.size(); ++reader) {
      if (number >= rounds_[reader].size()) continue;
      for (const auto& [rank, message] : rounds_[reader][number].to)
        (reader == own ? out : in) += message.bytes;
    }
    sent = std::max(sent, out);
    received = std::max(received, in);
  }
  sent_ = tensors::empty({static_cast<std::int64_t>(sent)}, {.dtype = DType::u8});
  received_ = tensors::empty({static_cast<std::int64_t>(received)}, {.dtype = DType::u8});
}

void SharedReads::pass_on(const SharedPart& part, std::uint64_t begin, std::string_view bytes,
                          std::map<int, char*>& messages) const {
  for (const int rank : part.wanters) {
    const bool is_own = rank == group_.rank();
    char* message = is_own ? nullptr : messages.at(rank);
    each_wish(part, rank, begin, begin + bytes.size(), [&](std::size_t wish, ByteRuns runs) {
      while (const std::optional<ByteRun> run = runs.next()) {
        std::memcpy(is_own ? memory_[wish] + run->to : message, bytes.data() + (run->from - begin),
                    run->bytes);
        if (!is_own) message += run->bytes;
      }
    });
    if (!is_own) messages[rank] = message;
  }
}

// As pass_on() has put them: a block at a time, of each block wish by wish.
void SharedReads::take(const Message& message, const char* bytes) const {
  for (const std::size_t number : message.parts) {
    const SharedPart& part = parts_[number];
    for (std::uint64_t at = part.begin; at < part.end; at += kBlockBytes) {
      const std::uint64_t end = std::min(at + kBlockBytes, part.end);
      each_wish(part, group_.rank(), at, end, [&](std::size_t wish, ByteRuns runs) {
        while (const std::optional<ByteRun> run = runs.next()) {
          std::memcpy(memory_[wish] + run->to, bytes, run->bytes);
          bytes += run->bytes;
        }
      });
    }
  }
}

std::uint64_t SharedReads::run(FileCalls& files, const std::string& folder, PageCache cache) {
  const auto own = static_cast<std::size_t>(group_.rank());
  Reader reader(*this, files, folder, cache);
  std::exception_ptr fault;
  for (std::size_t number = 0; number < most_rounds_; ++number) {
    std::vector<P2POp> receives, sends;
    std::vector<std::pair<const Message*, const char*>> taken;
    std::uint64_t at = 0;
    for (std::size_t from = 0; from < rounds_.size(); ++from) {
      if (from == own || number >= rounds_[from].size()) continue;
      const auto message = rounds_[from][number].to.find(group_.rank());
      if (message == rounds_[from][number].to.end()) continue;
      const LocalTensor place = bytes_of(received_, at, message->second.bytes);
      receives.push_back({P2POp::Kind::receive, place, static_cast<int>(from), kTag});
      taken.emplace_back(&message->second, static_cast<const char*>(place.data()));
      at += message->second.bytes;
    }
    // Receives are posted first, so that a peer's message can come while this rank reads its
    // blocks.
    std::vector<collectives::Work> works = group_.batch_isend_irecv(receives);
    if (number < rounds_[own].size()) {
      const Round& round = rounds_[own][number];
      std::map<int, char*> messages;
      at = 0;
      for (const auto& [rank, message] : round.to) {
        const LocalTensor place = bytes_of(sent_, at, message.bytes);
        sends.push_back({P2POp::Kind::send, place, rank, kTag});
        messages[rank] = static_cast<char*>(place.data());
        at += message.bytes;
      }
      // What could not be read is sent as it is: the verdict comes when all have the rest.
      try {
        for (std::size_t i = 0; i < round.parts.size() && !fault; ++i) {
          const SharedPart& part = parts_[round.parts[i]];
          for (std::uint64_t begin = part.begin; begin < part.end; begin += kBlockBytes)
            pass_on(part, begin, reader.block(part, begin / kBlockBytes), messages);
        }
      } catch (...) {
        fault = std::current_exception();
      }
      for (collectives::Work& work : group_.batch_isend_irecv(sends))
        works.push_back(std::move(work));
    }
    for (collectives::Work& work : works) work.wait();
    for (const auto& [message, bytes] : taken) take(*message, bytes);
  }
  if (fault) std::rethrow_exception(fault);
  return reader.bytes_read();
}

}  // namespace dtrun::dtensor::dcp
