#include "group_table.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "dtrun/base/futex.h"

namespace dtrun::collectives::cpu {

namespace {
constexpr std::uint32_t kNotTold = 0;
constexpr std::uint32_t kBeingTold = 1;
constexpr std::uint32_t kTold = 2;
/// For some thousand bytes of memcpy, unless the teller was killed or stopped in the middle of it.
constexpr auto kTellingBudget = std::chrono::milliseconds(100);
}  // namespace

GroupTable* GroupTable::make_at(std::byte* memory, std::size_t members, Posts posts,
                                std::uint64_t generation) {
  auto* table = reinterpret_cast<GroupTable*>(memory);
  // Before anything else: who compares it never takes the next group's numbers for its own.
  table->generation.store(generation, std::memory_order_seq_cst);
  table->departed.store(0, std::memory_order_seq_cst);
  table->left.store(0, std::memory_order_relaxed);
  table->long_waits.store(0, std::memory_order_relaxed);
  table->told.store(0, std::memory_order_relaxed);
  for (PostCounts& counts : table->post_counts)
    for (std::atomic<std::uint32_t>& count : counts.of) count.store(0, std::memory_order_relaxed);
  table->members = static_cast<std::uint32_t>(members);
  for (std::size_t line = 0; line < kCollectiveLanes * members; ++line)
    new (&table->lines(Lane::prompt)[line]) MemberLine();
  for (std::size_t post = 0; posts == Posts::all && post < members * posts_of_all_lanes(); ++post)
    new (&table->posts(Lane::prompt)[post]) Post();
  return table;
}

bool GroupTable::tell_failure(const std::string& text) {
  std::uint32_t none = kNotTold;
  if (!told.compare_exchange_strong(none, kBeingTold, std::memory_order_seq_cst)) return false;
  failure_bytes = static_cast<std::uint32_t>(std::min(text.size(), sizeof(failure)));
  std::memcpy(failure, text.data(), failure_bytes);
  told.store(kTold, std::memory_order_seq_cst);
  base::futex_wake_all(told);
  return true;
}

std::string GroupTable::failure_text() {
  const base::Deadline deadline = base::Deadline::after(kTellingBudget);
  while (told.load(std::memory_order_seq_cst) == kBeingTold && !deadline.expired())
    base::futex_wait(told, kBeingTold, deadline);
  if (told.load(std::memory_order_seq_cst) != kTold) return {};
  return {failure, std::min<std::size_t>(failure_bytes, sizeof(failure))};
}

}  // namespace dtrun::collectives::cpu
