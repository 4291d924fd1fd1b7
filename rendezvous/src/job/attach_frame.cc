#include "dtrun/rendezvous/attach_frame.h"

#include <fmt/core.h>

#include <charconv>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::size_t kHeadBytes = 5;

}  // namespace

std::uint64_t AttachFrame::number() const {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

std::string frame_of(AttachKind kind, std::string_view text) {
  DT_CHECK(text.size() <= kMostAttachBytes);
  std::string frame(1, static_cast<char>(kind));
  for (int shift = 0; shift < 32; shift += 8) frame += static_cast<char>(text.size() >> shift);
  return frame += text;
}

std::optional<AttachFrame> take_attach_frame(std::string& input) {
  if (input.size() < kHeadBytes) return std::nullopt;
  const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(input[at]); };
  std::size_t size = 0;
  for (std::size_t i = 0; i < 4; ++i) size |= std::size_t{byte(1 + i)} << 8 * i;
  const bool is_known = byte(0) >= static_cast<std::uint8_t>(AttachKind::kOut) &&
                        byte(0) <= static_cast<std::uint8_t>(AttachKind::kRefused);
  if (!is_known || size > kMostAttachBytes)
    throw base::Error(base::ErrorCode::kProtocol,
                      "the dtrun of the job says what is not understood",
                      fmt::format("a frame of kind {} and {} bytes", byte(0), size),
                      "attach with the same dtrun that has started the job");
  if (input.size() < kHeadBytes + size) return std::nullopt;
  AttachFrame frame{static_cast<AttachKind>(byte(0)), input.substr(kHeadBytes, size)};
  input.erase(0, kHeadBytes + size);
  return frame;
}

}  // namespace dtrun::rendezvous
