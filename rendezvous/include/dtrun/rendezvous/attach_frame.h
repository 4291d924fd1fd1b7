// What a dtrun says to those that are attached to it (`dtrun attach`): frames on a Unix socket in
// the abstract namespace, of which the name begins with kAttachName. A frame is u8 kind, u32 length
// (little-endian, kMostAttachBytes at the most), bytes. Nothing is said in the other direction.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::rendezvous {

inline constexpr std::string_view kAttachName = "dtrun-attach-";
inline constexpr std::size_t kMostAttachBytes = 1 << 20;

enum class AttachKind : std::uint8_t {
  kOut = 1,  ///< bytes as they stand on the dtrun's standard output
  kError,    ///< the same of its standard error
  kDropped,  ///< a number: bytes that were dropped here, because the reader was slow
  kEnd,      ///< a number: the job's exit code; nothing follows
  kRefused,  ///< a text: why; nothing follows
};

struct AttachFrame {
  AttachKind kind = AttachKind::kOut;
  std::string text;

  /// Of kDropped and kEnd; 0: it is none.
  std::uint64_t number() const;
};

/// @param text a number in decimal digits, where the kind has one
std::string frame_of(AttachKind kind, std::string_view text);

/// Takes a frame from the beginning of `input`. nullopt: more bytes are wanted.
/// @throws Error kProtocol for what is none
std::optional<AttachFrame> take_attach_frame(std::string& input);

}  // namespace dtrun::rendezvous
