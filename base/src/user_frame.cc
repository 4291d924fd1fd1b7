#include "dtrun/base/user_frame.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>

#include "code_map.h"

namespace dtrun::base {
namespace {

/// Recursions deeper than this have no user's line.
constexpr std::size_t kMostFrames = 128;
/// Of a stripped program: so many addresses lead out of dtrun for sure, and fit into a line or two.
constexpr std::size_t kMostAddresses = 14;
constexpr std::size_t kLongestName = 120;
/// As names are mangled.
constexpr std::string_view kOwnNamespace = "5dtrun";

struct Frames {
  /// Calls from here on are not the user's: a program may wrap _Unwind_Backtrace.
  std::uintptr_t innermost = 0;
  /// Within the call instructions, the innermost first.
  std::array<std::uintptr_t, kMostFrames> addresses;
  std::size_t count = 0;
};

_Unwind_Reason_Code note_frame(_Unwind_Context* context, void* data) {
  Frames& frames = *static_cast<Frames*>(data);
  int is_before = 0;
  const std::uintptr_t address = _Unwind_GetIPInfo(context, &is_before);
  if (address == 0 || frames.count == kMostFrames) return _URC_END_OF_STACK;
  if (_Unwind_GetCFA(context) <= frames.innermost) return _URC_NO_REASON;
  frames.addresses[frames.count++] = is_before != 0 ? address : address - 1;
  return _URC_NO_REASON;
}

bool starts_with_one_of(std::string_view text, std::span<const std::string_view> starts) {
  return std::ranges::any_of(starts,
                             [&](std::string_view start) { return text.starts_with(start); });
}

std::string_view basename_of(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

/// Ours, or a header that came with the compiler or the system. Tests and examples are the user's.
bool is_library_file(std::string_view file) {
  constexpr std::string_view kThisFile = "base/src/user_frame.cc";
  constexpr std::string_view kLayers[] = {"base/",        "rendezvous/", "tensor/",
                                          "collectives/", "dtensor/",    "runtime/"};
  constexpr std::string_view kSystem[] = {"/usr/include/", "/usr/lib/"};
  std::string_view root = __FILE__;
  root.remove_suffix(std::min(root.size(), kThisFile.size()));
  if (file.find("include/dtrun/") != std::string_view::npos) return true;
  if (file.find("include/c++/") != std::string_view::npos) return true;
  if (starts_with_one_of(file, kSystem)) return true;
  return file.starts_with(root) && starts_with_one_of(file.substr(root.size()), kLayers);
}

/// In namespace dtrun or std, or what begins a thread or a program.
bool is_library_symbol(std::string_view mangled) {
  constexpr std::string_view kStarts[] = {"_start", "start_thread", "clone", "__clone",
                                          "__libc_start"};
  constexpr std::string_view kNamespaces[] = {
      kOwnNamespace, "St", "Sa", "Ss", "Sb", "Si", "So", "Sd", "9__gnu_cxx", "10__cxxabiv1"};
  if (!mangled.starts_with("_Z")) return starts_with_one_of(mangled, kStarts);
  mangled.remove_prefix(2);
  if (mangled.starts_with("Th") || mangled.starts_with("Tv")) {  // a thunk: its offsets end in _
    const std::size_t last = mangled.find("_N");
    if (last != std::string_view::npos) mangled.remove_prefix(last + 1);
  }
  // Local names, nested names, the qualifiers of methods.
  mangled.remove_prefix(std::min(mangled.find_first_not_of("ZNrVKROL"), mangled.size()));
  return starts_with_one_of(mangled, kNamespaces);
}

struct Object {
  std::string_view path;
  std::uintptr_t base = 0;
};

Object object_at(std::uintptr_t address) {
  Dl_info found{};
  if (::dladdr(reinterpret_cast<void*>(address), &found) == 0 || found.dli_fname == nullptr)
    return {};
  return {found.dli_fname, reinterpret_cast<std::uintptr_t>(found.dli_fbase)};
}

bool is_system_object(std::string_view path) {
  constexpr std::string_view kSystem[] = {"libc.so",    "libc-",    "libstdc++.so", "libc++",
                                          "libpthread", "libgcc_s", "ld-linux",     "libm.so",
                                          "libasan",    "libtsan",  "libubsan",     "linux-vdso"};
  return starts_with_one_of(basename_of(path), kSystem);
}

std::string hexadecimal(std::uintptr_t number) {
  std::string digits;
  for (; number != 0 || digits.empty(); number /= 16) digits += "0123456789abcdef"[number % 16];
  digits += "x0";
  return {digits.rbegin(), digits.rend()};
}

std::string readable(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  std::string text = status == 0 && name ? name.get() : mangled;
  if (text.size() > kLongestName) text = text.substr(0, kLongestName) + "...";
  return text;
}

/// The first line at an address that is no library's.
class UserLine final : public CodeLineVisitor {
 public:
  explicit UserLine(std::uintptr_t address) { lines_at(address, *this); }

  bool on_line(const char* file, int line) override {
    is_known_ = true;
    if (line <= 0 || is_library_file(file)) return true;
    text_ = std::string(basename_of(file)) + ":" + std::to_string(line);
    return false;
  }

  bool is_known() const { return is_known_; }
  const std::string& text() const { return text_; }

 private:
  bool is_known_ = false;
  std::string text_;
};

/// Without symbols nothing tells dtrun's own frames from the user's.
std::string stripped_text(const Object& own, std::span<const std::uintptr_t> addresses) {
  std::string text =
      std::string(own.path) + ", which is stripped: addr2line -Cfpie PROGRAM_WITH_SYMBOLS";
  std::size_t told = 0;
  for (const std::uintptr_t address : addresses) {
    if (object_at(address).base != own.base) continue;
    if (++told > kMostAddresses) break;
    text += " " + hexadecimal(address - own.base);
  }
  return text;
}

/// "main+0x1f2 in ./app (...)".
std::string symbol_text(std::uintptr_t address, const CodeSymbol& symbol, const Object& object) {
  const std::string place = symbol.name == nullptr
                                ? hexadecimal(address - object.base)
                                : readable(symbol.name) + "+" + hexadecimal(address - symbol.start);
  return place + " in " + std::string(object.path) + " (compile with -g for the line)";
}

/// The user's innermost frame.
class Search {
 public:
  /// @returns true: this is it
  bool look_at(std::uintptr_t address) {
    const Object object = object_at(address);
    if (is_system_object(object.path)) return false;
    if (const UserLine line(address); line.is_known()) {
      found_ = line.text();
      return !found_.empty();
    }
    const CodeSymbol symbol = symbol_at(address);
    const std::string_view name = symbol.name == nullptr ? "" : symbol.name;
    if (is_library_symbol(name)) {
      // A lambda of the user's may be inlined into the function of std:: that runs it: a thread's.
      const bool may_be_users = second_best_.empty() && name.starts_with("_Z") &&
                                name.find(kOwnNamespace) == std::string_view::npos;
      if (may_be_users) second_best_ = symbol_text(address, symbol, object);
      return false;
    }
    found_ = symbol_text(address, symbol, object);
    return true;
  }

  std::string result() const { return found_.empty() ? second_best_ : found_; }

 private:
  std::string found_;
  std::string second_best_;
};

}  // namespace

std::string user_frame() noexcept try {
  Frames frames;
  frames.innermost = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  _Unwind_Backtrace(note_frame, &frames);
  const std::span<const std::uintptr_t> addresses(frames.addresses.data(), frames.count);
  const auto own = reinterpret_cast<std::uintptr_t>(&user_frame);
  if (symbol_at(own).name == nullptr && !UserLine(own).is_known())
    return stripped_text(object_at(own), addresses);
  Search search;
  for (const std::uintptr_t address : addresses) {
    if (search.look_at(address)) break;
  }
  return search.result();
} catch (...) {  // memory has run out: the error itself is what counts
  return {};
}

}  // namespace dtrun::base
