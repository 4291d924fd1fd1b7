// The messages as text, for traces: "Start r3 g0/4".
#pragma once

#include <string>

#include "dtrun/rendezvous/round_head.h"
#include "dtrun/rendezvous/round_member.h"

namespace dtrun::simulation {

std::string text_of(const rendezvous::rounds::AgentMessage& message);
std::string text_of(const rendezvous::rounds::HeadMessage& message);
std::string name_of(rendezvous::rounds::MemberPhase phase);
std::string name_of(rendezvous::rounds::HeadPhase phase);
/// kNoRound where the message belongs to none.
int round_of(const rendezvous::rounds::AgentMessage& message);
int round_of(const rendezvous::rounds::HeadMessage& message);

}  // namespace dtrun::simulation
