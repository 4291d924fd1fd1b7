#include "dtrun/rendezvous/job_page.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <new>
#include <string_view>
#include <type_traits>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/base/futex.h"
#include "wire/printable.h"

namespace dtrun::rendezvous {
namespace {

using base::Error;
using base::ErrorCode;

// The layout is frozen (see the header): a worker may be older or newer than its launcher.
static_assert(sizeof(Operation) == 88);
static_assert(sizeof(HistoryEntry) == 192);
static_assert(sizeof(RankSlot) == 1536);
static_assert(offsetof(RankSlot, passing) == 1448);
static_assert(offsetof(RankSlot, awaited_call) == 1476);
static_assert(offsetof(JobPageHeader, history_offset) == 144);
static_assert(sizeof(Cause) == 280);
static_assert(sizeof(JobPageHeader) == 512);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

constexpr std::uint32_t kCauseNone = 0;
constexpr std::uint32_t kCauseBeingWritten = 1;
constexpr std::uint32_t kCauseThere = 2;

// How long a reader waits for a cause that another process has begun to write: a few hundred bytes
// of memcpy, unless that process was killed in the middle of it.
constexpr base::Deadline::Duration kCauseBudget = std::chrono::milliseconds(100);

std::string_view bounded(const char* text, std::size_t capacity) {
  return {text, ::strnlen(text, capacity)};
}

Error not_a_page(int fd, std::string why) {
  return Error(ErrorCode::kProtocol, fmt::format("file descriptor {} is no job page", fd),
               std::move(why),
               "start the worker with the dtrun of the same version, and let it inherit the "
               "descriptor in DTRUN_JOB_PAGE_FD (Python's subprocess: close_fds=False)");
}

// What the header says of the layout; histories came later, and are zeros in older pages.
struct Preamble {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t slot_count;
  std::uint64_t size;
  std::uint64_t slots_offset;
  alignas(128) std::uint32_t words[3];
  std::uint32_t history_length;
  std::uint64_t history_offset;
};
static_assert(offsetof(Preamble, history_length) == offsetof(JobPageHeader, history_length));
static_assert(offsetof(Preamble, history_offset) == offsetof(JobPageHeader, history_offset));

bool histories_fit(const Preamble& preamble) {
  if (preamble.history_length == 0) return true;
  if (preamble.history_offset > preamble.size || preamble.slot_count == 0 ||
      preamble.history_offset % alignof(HistoryEntry) != 0)
    return false;
  const std::uint64_t of_each = (preamble.size - preamble.history_offset) / preamble.slot_count;
  return preamble.history_length <= of_each / sizeof(HistoryEntry);
}

void demand_page(int fd, const Preamble& preamble, std::uint64_t file_size) {
  if (preamble.magic != JobPage::kMagic)
    throw not_a_page(fd, "its first bytes are not a job page's");
  if (preamble.version != JobPage::kVersion)
    throw not_a_page(fd, fmt::format("it has version {}, this program reads version {}",
                                     preamble.version, JobPage::kVersion));
  const bool slots_fit =
      preamble.slots_offset >= sizeof(JobPageHeader) &&
      preamble.slots_offset % alignof(RankSlot) == 0 && preamble.slots_offset <= preamble.size &&
      preamble.slot_count <= (preamble.size - preamble.slots_offset) / sizeof(RankSlot);
  if (preamble.size > file_size || !slots_fit || !histories_fit(preamble))
    throw not_a_page(fd, fmt::format("its {} bytes do not hold what its header says", file_size));
}

std::string id_of(const struct stat& status) {
  return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

// Other processes may be writing here, so it must be read once only; volatile keeps the compiler
// from reading it twice.
template <typename T>
T copy_of(const T& shared) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::array<char, sizeof(T)> bytes;
  const auto* const from = reinterpret_cast<const volatile char*>(&shared);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = from[i];
  T copy;
  std::memcpy(static_cast<void*>(&copy), bytes.data(), bytes.size());
  return copy;
}

struct HistoryText {
  char* text;
  std::size_t capacity;
};

std::array<HistoryText, 5> history_texts(HistoryEntry& entry) {
  return {{{entry.operation.name, sizeof entry.operation.name},
           {entry.operation.group, sizeof entry.operation.group},
           {entry.call_site, sizeof entry.call_site},
           {entry.dtype, sizeof entry.dtype},
           {entry.reduce_op, sizeof entry.reduce_op}}};
}

void make_printable(char* text, std::size_t capacity) {
  const std::string clean = printable(bounded(text, capacity - 1));
  std::fill_n(text, capacity, '\0');
  clean.copy(text, capacity - 1);
}

}  // namespace

RankState state_of(const RankSlot& slot) {
  const auto state = static_cast<RankState>(slot.state.load());
  const bool is_passing = state < RankState::kInCollective && slot.passing.load() != 0;
  return is_passing ? RankState::kInCollective : state;
}

std::optional<AwaitedOperation> awaited_in(const RankSlot& slot) {
  const std::int64_t since = slot.awaited_since_ns.load(std::memory_order_acquire);
  if (since == 0) return std::nullopt;
  const RankSlot::AwaitedCall call = copy_of(slot.awaited_call);
  return AwaitedOperation{.by = slot.awaited_by.load(),
                          .name = printable(bounded(call.name, sizeof call.name)),
                          .group = printable(bounded(call.group, sizeof call.group)),
                          .sequence = slot.awaited_sequence.load(),
                          .since_ns = since};
}

std::string describe_newest_operation(const RankSlot& slot) {
  const std::uint64_t begun = slot.operations.load(std::memory_order_acquire);
  if (begun == 0) return "";
  const Operation operation = copy_of(slot.ring[(begun - 1) % kOperationRing]);
  return fmt::format("{} #{} of group '{}'",
                     printable(bounded(operation.name, sizeof operation.name)), operation.sequence,
                     printable(bounded(operation.group, sizeof operation.group)));
}

JobPage JobPage::create(int local_ranks, const HistoryPlan& plan) {
  DT_CHECK(local_ranks > 0);
  const auto count = static_cast<std::size_t>(local_ranks);
  Layout layout{.slot_count = local_ranks,
                .slots_offset = sizeof(JobPageHeader),
                .history_length = plan.length,
                .history_offset = sizeof(JobPageHeader) + count * sizeof(RankSlot)};
  const std::size_t size =
      layout.history_offset + count * layout.history_length * sizeof(HistoryEntry);
  base::SharedMemory memory = base::SharedMemory::reserve("dtrun-job-page", size, size);
  // Header and slots alone take memory now. A rank's history does when the rank opens it.
  memory.commit(0, layout.history_offset);
  JobPageHeader* header = new (memory.data()) JobPageHeader();
  header->magic = kMagic;
  header->version = kVersion;
  header->slot_count = static_cast<std::uint32_t>(local_ranks);
  header->size = size;
  header->slots_offset = layout.slots_offset;
  header->history_length = static_cast<std::uint32_t>(layout.history_length);
  header->history_offset = layout.history_offset;
  header->history_times = static_cast<std::uint32_t>(plan.times);
  for (std::size_t i = 0; i < count; ++i)
    new (memory.data() + layout.slots_offset + i * sizeof(RankSlot)) RankSlot();
  return {std::move(memory), layout};
}

JobPage JobPage::open(int fd, std::string_view id) {
  base::UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) throw not_a_page(fd, "it is not open");
  struct stat status {};
  Preamble preamble{};
  if (::fstat(own.get(), &status) != 0 || (!id.empty() && id_of(status) != id))
    throw not_a_page(fd,
                     "it is another file: somebody has closed the page's descriptor, and the "
                     "number was given out anew");
  // Read before it is mapped: a mapping of something shorter would end in SIGBUS.
  const auto wanted = static_cast<ssize_t>(sizeof(JobPageHeader));
  if (!S_ISREG(status.st_mode) || status.st_size < wanted ||
      ::pread(own.get(), &preamble, sizeof preamble, 0) != sizeof preamble)
    throw not_a_page(fd, "it is no file, or too short");
  demand_page(fd, preamble, static_cast<std::uint64_t>(status.st_size));
  return {base::SharedMemory::map(std::move(own), preamble.size),
          Layout{.slot_count = static_cast<int>(preamble.slot_count),
                 .slots_offset = preamble.slots_offset,
                 .history_length = preamble.history_length,
                 .history_offset = preamble.history_offset}};
}

JobPageHeader& JobPage::header() const {
  return *std::launder(reinterpret_cast<JobPageHeader*>(memory_.data()));
}

RankSlot& JobPage::slot(int local_rank) const {
  DT_CHECK(local_rank >= 0 && local_rank < slot_count());
  std::byte* const slots = memory_.data() + layout_.slots_offset;
  return *std::launder(
      reinterpret_cast<RankSlot*>(slots + static_cast<std::size_t>(local_rank) * sizeof(RankSlot)));
}

std::size_t JobPage::history_offset(int local_rank) const {
  DT_CHECK(local_rank >= 0 && local_rank < slot_count());
  return layout_.history_offset +
         static_cast<std::size_t>(local_rank) * layout_.history_length * sizeof(HistoryEntry);
}

std::span<HistoryEntry> JobPage::open_history(int local_rank) const {
  if (layout_.history_length == 0) return {};
  const std::size_t offset = history_offset(local_rank);
  memory_.commit(offset, layout_.history_length * sizeof(HistoryEntry));
  return {reinterpret_cast<HistoryEntry*>(memory_.data() + offset), layout_.history_length};
}

std::vector<HistoryEntry> JobPage::history(int local_rank, std::size_t most) const {
  std::vector<HistoryEntry> result;
  const std::uint64_t recorded = slot(local_rank).recorded.load(std::memory_order_acquire);
  const std::uint64_t passing = slot(local_rank).passing.load(std::memory_order_acquire);
  const std::uint64_t length = layout_.history_length;
  if (recorded == 0 || length == 0) return result;
  const auto* const entries =
      reinterpret_cast<const HistoryEntry*>(memory_.data() + history_offset(local_rank));
  const std::uint64_t wanted = std::min<std::uint64_t>({recorded, length, most});
  for (std::uint64_t i = wanted; i > 0; --i) {
    HistoryEntry entry = copy_of(entries[(recorded - i) % length]);
    for (const auto [text, capacity] : history_texts(entry)) make_printable(text, capacity);
    if (recorded - i + 1 == passing) entry.operation.ended_ns = 0;
    result.push_back(entry);
  }
  // The rank goes on meanwhile, and writes over its oldest entries: what was read of those may be
  // of two operations.
  const std::uint64_t later = slot(local_rank).recorded.load(std::memory_order_acquire);
  const std::uint64_t oldest_kept = later > length ? later - length : 0;
  const std::uint64_t oldest_read = recorded - wanted;
  if (oldest_kept > oldest_read)
    result.erase(result.begin(),
                 result.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(
                                      oldest_kept - oldest_read, result.size())));
  return result;
}

std::optional<int> JobPage::slot_of(int global_rank) const {
  for (int i = 0; i < slot_count(); ++i)
    if (slot(i).global_rank.load() == global_rank) return i;
  return std::nullopt;
}

std::string JobPage::id() const {
  struct stat status {};
  if (::fstat(fd(), &status) != 0) throw base::system_error("look at the job page");
  return id_of(status);
}

bool JobPage::abort(const Cause& cause) {
  JobPageHeader& page = header();
  std::uint32_t none = kCauseNone;
  const bool first =
      page.cause_state.compare_exchange_strong(none, kCauseBeingWritten, std::memory_order_acq_rel);
  if (first) {
    page.cause = cause;
    page.cause_state.store(kCauseThere, std::memory_order_release);
    base::futex_wake_all(page.cause_state);
  }
  // Those who come second set it, too: the first may have been killed between its two stores.
  page.abort.store(1, std::memory_order_release);
  base::futex_wake_all(page.abort);
  return first;
}

std::string JobPage::describe_cause() const {
  const JobPageHeader& page = header();
  const base::Deadline deadline = base::Deadline::after(kCauseBudget);
  std::uint32_t state = page.cause_state.load(std::memory_order_acquire);
  while (state == kCauseBeingWritten && !deadline.expired()) {
    base::futex_wait(page.cause_state, kCauseBeingWritten, deadline);
    state = page.cause_state.load(std::memory_order_acquire);
  }
  if (state != kCauseThere) return {};

  const Cause cause = copy_of(page.cause);
  const std::string text(bounded(cause.text, sizeof cause.text));
  if (cause.global_rank < 0) return text.empty() ? "the launcher ended the job" : text;
  std::string result = fmt::format("rank {}", cause.global_rank);
  if (cause.pid != 0) result += fmt::format(" (pid {})", cause.pid);  // 0: of another node
  const bool dead = cause.signal != 0 || cause.exit_code != 0;
  if (cause.signal != 0) {
    result += " was killed by " + base::signal_name(cause.signal);
  } else if (cause.exit_code != 0) {
    result += fmt::format(" exited with code {}", cause.exit_code);
  } else {
    result += " failed";
  }
  switch (static_cast<RankState>(cause.state_at_death)) {
    case RankState::kSpawned:
      result += " before its init";
      break;
    case RankState::kInit:
      result += " in its init";
      break;
    case RankState::kInCollective:
      if (dead && cause.local_rank >= 0 && cause.local_rank < slot_count()) {
        const std::string operation = describe_newest_operation(slot(cause.local_rank));
        result += " in " + (operation.empty() ? "a collective" : operation);
      }
      break;
    case RankState::kNone:
    case RankState::kRunning:
    case RankState::kLeft:
    case RankState::kExited:
      break;
  }
  if (!text.empty()) result += ": " + text;
  return result;
}

}  // namespace dtrun::rendezvous
