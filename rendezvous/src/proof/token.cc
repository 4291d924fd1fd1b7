#include "dtrun/rendezvous/token.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "dtrun/base/error.h"
#include "dtrun/base/split.h"
#include "dtrun/base/unique_fd.h"
#include "proof/hmac_sha256.h"

namespace dtrun::rendezvous {
namespace {

using base::Error;
using base::ErrorCode;

constexpr const char* kMakeOne = "head -c 32 /dev/urandom | base64 makes one";

std::string read_at_most(int fd, std::size_t most) {
  std::string text(most, '\0');
  std::size_t size = 0;
  while (size < most) {
    const ssize_t n = ::read(fd, text.data() + size, most - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw base::system_error("read a token's file");
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  text.resize(size);
  return text;
}

// As ssh does with its keys: what others can read or replace proves nothing.
void demand_private(int fd, const std::string& path, const std::string& origin) {
  struct stat file {};
  if (::fstat(fd, &file) != 0)
    throw base::system_error(fmt::format("look at the token's file '{}'", path));
  const bool owned = file.st_uid == ::geteuid() || file.st_uid == 0;
  const unsigned mode = file.st_mode & 07777U;
  if (owned && (mode & (S_IRWXG | S_IRWXO)) == 0) return;
  throw Error(ErrorCode::kUsage, fmt::format("{}{}: others can have read this token", origin, path),
              owned ? fmt::format("the file's mode is {:04o}", mode)
                    : fmt::format("the file belongs to user {}", file.st_uid),
              fmt::format("make a new one in a new file, yours alone: (umask 077; head -c 32 "
                          "/dev/urandom | base64 > {}.new)",
                          path));
}

}  // namespace

Token::Token(std::string_view text, const std::string& origin) : secret_(base::trimmed(text)) {
  if (secret_.size() < kLeastBytes)
    throw Error(ErrorCode::kUsage, fmt::format("the token of {} is too short", origin),
                fmt::format("it has {} characters, and less than {} could be guessed",
                            secret_.size(), kLeastBytes),
                kMakeOne);
  if (secret_.size() > kMostBytes)
    throw Error(ErrorCode::kUsage, fmt::format("the token of {} is too long", origin),
                fmt::format("at most {} characters are read", kMostBytes), kMakeOne);
}

Token Token::from_file(const std::string& path, const std::string& origin) {
  const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    const int reason = errno;
    if (reason == ENOENT)
      throw Error(ErrorCode::kNotFound, fmt::format("{}: there is no file '{}'", origin, path), "",
                  fmt::format("every node needs the same file; {}", kMakeOne));
    throw base::system_error(fmt::format("open the token's file '{}'", path), reason);
  }
  demand_private(fd.get(), path, origin);
  return Token(read_at_most(fd.get(), kMostBytes + 2), origin + path);
}

Token::Code Token::code_of(std::string_view message) const {
  return hmac_sha256(secret_, message);
}

bool same_code(const Token::Code& own, std::string_view theirs) {
  if (theirs.size() != own.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < own.size(); ++i)
    difference |= own[i] ^ static_cast<unsigned char>(theirs[i]);
  return difference == 0;
}

}  // namespace dtrun::rendezvous
