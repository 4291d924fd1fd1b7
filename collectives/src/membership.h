// Membership: how the members of a new group find one another through the store: every rank puts up
// a card; rank 0 makes one roster of all cards, which the others read. So each rank asks the store
// a fixed number of times, however many there are. Ranks that disagree about the group's size or
// its cost table all fail, with both sides named.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/collectives/process_group.h"

namespace dtrun::collectives {

struct Card {
  int global_rank = 0;
  int pid = 0;
  std::string host;         ///< for messages
  std::string commons;      ///< equal names: these ranks share memory; empty: with nobody
  std::string address;      ///< numeric
  std::uint16_t port = 0;   ///< 0: does not listen
  std::uint64_t token = 0;  ///< the group's is that of rank 0; keeps strangers out
};

/// Collective over the members. @return the cards in rank order
/// @throws Error kTimeout naming who is missing, kDisagreement naming both sides
std::vector<Card> exchange_cards(const GroupOptions& options, const Card& mine,
                                 base::Deadline deadline);

/// For a rank that finds a member ended before all had joined: it may have refused the group.
/// @throws Error kDisagreement
void throw_if_refused(rendezvous::Store& store, base::Deadline deadline);

/// "rank 3 (pid 812 on n0)".
std::string describe_member(const Card& card);

}  // namespace dtrun::collectives
