#include "code_map.h"

#include <backtrace.h>

#include <atomic>
#include <mutex>

namespace dtrun::base {
namespace {

void ignore(void* /*data*/, const char* /*message*/, int /*error_number*/) {}

/// A lock would stay locked in a child that another thread of ours forked meanwhile. Who comes
/// second loses some bytes. What libbacktrace has read it keeps, and it locks nothing either.
backtrace_state* state() {
  static constinit std::atomic<backtrace_state*> made{nullptr};
  backtrace_state* known = made.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  backtrace_state* const fresh = backtrace_create_state(nullptr, 1, ignore, nullptr);
  return made.compare_exchange_strong(known, fresh, std::memory_order_acq_rel) ? fresh : known;
}

#if defined(__SANITIZE_THREAD__)
/// The thread sanitizer does not see libbacktrace's own locks, and reports races. To do so it asks
/// the loader for names, which the other thread of the race may keep locked: both hang.
class Turn {
  static inline std::mutex mutex_;
  const std::lock_guard<std::mutex> lock_{mutex_};
};
#else
struct Turn {};
#endif

}  // namespace

CodeSymbol symbol_at(std::uintptr_t address) {
  [[maybe_unused]] const Turn turn;
  CodeSymbol symbol;
  const auto note = [](void* data, std::uintptr_t, const char* name, std::uintptr_t start,
                       std::uintptr_t) {
    *static_cast<CodeSymbol*>(data) = {name, start};
  };
  if (state() != nullptr) backtrace_syminfo(state(), address, note, ignore, &symbol);
  return symbol;
}

void lines_at(std::uintptr_t address, CodeLineVisitor& visitor) {
  [[maybe_unused]] const Turn turn;
  const auto visit = [](void* data, std::uintptr_t, const char* file, int line, const char*) {
    if (file == nullptr) return 0;
    return static_cast<CodeLineVisitor*>(data)->on_line(file, line) ? 0 : 1;
  };
  if (state() != nullptr) backtrace_pcinfo(state(), address, visit, ignore, &visitor);
}

}  // namespace dtrun::base
