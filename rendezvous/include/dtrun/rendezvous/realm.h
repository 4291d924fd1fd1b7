// Realm: a service by which processes of one user recognise each other on all machines that it
// serves: only the same user's processes there can open what one of them seals. Munge is one; tests
// have their own.
#pragma once

#include <sys/types.h>

#include <string>

namespace dtrun::rendezvous {

class Realm {
 public:
  static constexpr std::size_t kSecretBytes = 32;
  struct Sealed {
    std::string secret;      ///< kSecretBytes, of the kernel's randomness, for this once
    std::string credential;  ///< it, sealed for this process's user; printable
  };
  struct Opened {
    std::string secret;
    uid_t user;  ///< who sealed it
  };

  virtual ~Realm() = default;
  /// @throws Error kUnavailable
  virtual Sealed seal() = 0;
  /// @param credential of somebody unknown
  /// @throws Error kUnavailable; kProtocol: it is of another realm, for another user, too old, or
  /// was opened on this machine before
  virtual Opened open(const std::string& credential) = 0;
  virtual uid_t own_user() const = 0;
};

}  // namespace dtrun::rendezvous
