// CommonsDoor: how the ranks of one machine come to share a commons. The first to come puts up in
// the store that it has one, and hands its descriptor to every rank that knocks: over an abstract
// Unix socket, which nobody outside the machine and network namespace can reach and of which
// nothing stays in the file system. Used by the world that owns it.
#pragma once

#include <optional>
#include <string>

#include "commons.h"
#include "dtrun/base/deadline.h"
#include "dtrun/base/spare_fd.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/store.h"
#include "life_sign.h"

namespace dtrun::collectives::cpu {

/// Boot id and network namespace: ranks with equal texts can reach each other's abstract sockets.
std::string locality_here();

class CommonsDoor {
 public:
  struct Place {
    rendezvous::Store& store;
    int global_rank;  ///< own, for messages
    int world_rank;
    int ranks;  ///< of the world
    base::Deadline deadline;
    std::string machine = "";  ///< as GroupOptions::machine
  };
  /// Finds the machine's commons, or makes it. Where it cannot be reached, whatever stands between
  /// (namespaces, a security module), and with `alone` the rank gets one of its own.
  /// @throws Error kSystem, kProtocol; kTimeout, kPeerFailed naming the rank that has made it
  enum class Company { machine, alone };
  CommonsDoor(const Place& place, Company company);

  const Commons& commons() const { return *commons_; }
  /// The commons' name, equal on all ranks that share it; empty: this rank is alone.
  const std::string& name() const { return name_; }

  /// Readable when somebody knocks; -1: another rank has made the commons.
  int fd() const { return door_.get(); }
  /// Hands the descriptor to one that has knocked, in the place of the spare one where no other is
  /// left. Never blocks. False: somebody waits still, and cannot be answered now.
  bool answer(base::SpareFd& spare);

 private:
  void make(int ranks);
  bool enter(const std::string& plate, const Place& place);

  std::optional<Commons> commons_;
  std::string name_;
  base::UniqueFd door_;
  std::optional<LifeSign> life_sign_;
};

}  // namespace dtrun::collectives::cpu
