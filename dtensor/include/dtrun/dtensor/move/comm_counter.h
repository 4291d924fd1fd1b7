// CommCounter: counts, while it stands, the collectives that its thread calls and the bytes that
// this rank gives to others in them; those of operators and those of one's own. PyTorch's
// CommDebugMode. Counters may stand in one another: each counts all.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>

namespace dtrun::dtensor {

struct CommCount {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  ///< that this rank gives, once for each rank that needs them
  CommCount& operator+=(const CommCount& other) {
    calls += other.calls;
    bytes += other.bytes;
    return *this;
  }
  friend bool operator==(const CommCount&, const CommCount&) = default;
};
/// By the collective's name: "all_gather".
using CommCounts = std::map<std::string, CommCount>;

/// Of a part of a program, on its two ways.
struct PassCounts {
  CommCounts forward;
  CommCounts backward;  ///< of what was called there
  friend bool operator==(const PassCounts&, const PassCounts&) = default;
};

class CommCounter {
 public:
  CommCounter();
  ~CommCounter();
  CommCounter(const CommCounter&) = delete;
  CommCounter& operator=(const CommCounter&) = delete;

  /// How often each was called.
  std::map<std::string, std::int64_t> get_comm_counts() const;
  std::int64_t get_total_counts() const { return total().calls; }
  std::int64_t get_total_bytes() const { return total().bytes; }
  /// Calls and bytes of each.
  CommCounts by_collective() const;
  /// By what they were for: "matmul", "matmul, backward", "redistribute"; "" for calls of a group.
  std::map<std::string, CommCounts> by_operator() const;
  /// By the modules that were called and the CommSections that stood, joined by dots:
  /// "Net.layers.0"; "" outside. backward() counts where forward was, if it was counted.
  std::map<std::string, CommCounts> by_section() const;
  /// The same, each with those within it, as PyTorch's comm_module_counts; "Global" is all.
  std::map<std::string, PassCounts> by_module() const;
  CommCount total() const;
  void reset();

  /// A table.
  std::string to_string() const;
  /// {"counts": [{"section", "for", "pass", "collective", "calls", "bytes_sent"}, ...], "calls",
  /// "bytes_sent"}, in the table's order.
  std::string to_json() const;

 private:
  class Observer;
  std::unique_ptr<Observer> observer_;
};

std::ostream& operator<<(std::ostream& out, const CommCounter& counter);

class StandingSection;

/// While it stands, counters of its thread note calls under its name: of any part of a program.
/// Modules (nn/module.h) do so themselves.
class CommSection {
 public:
  explicit CommSection(std::string name);
  ~CommSection();
  CommSection(const CommSection&) = delete;
  CommSection& operator=(const CommSection&) = delete;

 private:
  const std::unique_ptr<StandingSection> standing_;
};

}  // namespace dtrun::dtensor
