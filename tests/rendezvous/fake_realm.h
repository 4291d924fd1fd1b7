// FakeRealm: a realm that keeps no secret and asks nobody: one process of one user in it. Those
// that share a Ledger are on machines of one realm; each opens a credential once, as munged does.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/rendezvous/realm.h"

namespace dtrun::rendezvous {

class FakeRealm final : public Realm {
 public:
  /// All credentials that were sealed in the realm.
  using Ledger = std::map<std::string, Opened>;

  FakeRealm(std::shared_ptr<Ledger> ledger, uid_t user) : ledger_(std::move(ledger)), user_(user) {}

  Sealed seal() override {
    if (broken) throw unavailable();
    const std::string number = std::to_string(ledger_->size());
    const Sealed sealed{(number + std::string(secret_size, 's')).substr(0, secret_size),
                        "sealed " + number + std::string(padding, '.')};
    (*ledger_)[sealed.credential] = {sealed.secret, user_};
    return sealed;
  }
  Opened open(const std::string& credential) override {
    if (broken) throw unavailable();
    const auto found = ledger_->find(credential);
    if (found == ledger_->end()) throw refused("Invalid credential");
    if (found->second.user != user_ && !opens_all) throw refused("Unauthorized credential");
    if (!opened_.insert(credential).second) throw refused("Replayed credential");
    return found->second;
  }
  uid_t own_user() const override { return user_; }

  bool broken = false;
  bool opens_all = false;  // as if others had sealed for this user
  std::size_t padding = 100;
  std::size_t secret_size = kSecretBytes;

 private:
  static base::Error unavailable() {
    return {base::ErrorCode::kUnavailable, "the realm does not answer", "it is broken", "mend it"};
  }
  static base::Error refused(const char* why) {
    return {base::ErrorCode::kProtocol, "the realm does not open it", why, "use one realm"};
  }

  const std::shared_ptr<Ledger> ledger_;
  const uid_t user_;
  std::set<std::string> opened_;
};

}  // namespace dtrun::rendezvous
