#include "dtrun/base/error.h"

#include <fmt/core.h>
#include <string.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "dtrun/base/check.h"
#include "dtrun/base/user_frame.h"

namespace dtrun::base {

// Weak: a program that has tensors links it (dtensor asks for it by name), the launcher does not.
[[gnu::weak]] std::string user_frame() noexcept;

namespace {

/// Errors that reach a caller in this thread. Others are thrown in dtrun's own threads, or dtrun
/// catches them: a connection that is tried again.
bool names_its_caller(ErrorCode code) {
  return user_frame != nullptr &&
         (code == ErrorCode::kInvalidArgument || code == ErrorCode::kDisagreement);
}

}  // namespace

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kPeerFailed:
      return "peer failed";
    case ErrorCode::kDisagreement:
      return "disagreement";
    case ErrorCode::kConnection:
      return "connection";
    case ErrorCode::kProtocol:
      return "protocol";
    case ErrorCode::kSystem:
      return "system";
    case ErrorCode::kAborted:
      return "aborted";
  }
  return "unknown";
}

Error::Error(ErrorCode code, std::string what, std::string why, std::string remedy)
    : code_(code),
      what_(std::move(what)),
      why_(std::move(why)),
      remedy_(std::move(remedy)),
      text_(what_) {
  if (names_its_caller(code)) {
    if (const std::string frame = user_frame(); !frame.empty())
      text_.append(kPlaceMark).append(frame);
  }
  if (!why_.empty()) text_ += "\n  why: " + why_;
  if (!remedy_.empty()) text_ += "\n  try: " + remedy_;
}

std::string place_in(const Error& error) {
  std::string_view text = error.what();
  const std::size_t mark = text.find(kPlaceMark);
  if (mark == std::string_view::npos) return {};
  text.remove_prefix(mark + kPlaceMark.size());
  return std::string(text.substr(0, text.find('\n')));
}

Error system_error(std::string_view action, std::string remedy) {
  return system_error(action, errno, std::move(remedy));
}

Error system_error(std::string_view action, int error_number, std::string remedy) {
  const char* name = strerrorname_np(error_number);
  Error error(
      ErrorCode::kSystem, fmt::format("cannot {}", action),
      fmt::format("{} ({})",
                  strerrordesc_np(error_number) ? strerrordesc_np(error_number) : "unknown error",
                  name ? name : std::to_string(error_number).c_str()),
      std::move(remedy));
  error.error_number_ = error_number;
  return error;
}

std::string signal_name(int signal_number) {
  const char* name = sigabbrev_np(signal_number);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal_number);
}

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "dtrun: internal error: %s:%d: %s does not hold; please report this\n", file,
               line, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace dtrun::base
