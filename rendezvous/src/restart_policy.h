// Which failures of workers are worth a restart, and when it begins. Pure.
#pragma once

#include <string>

#include "dtrun/rendezvous/round_messages.h"

namespace dtrun::rendezvous::rounds {

/// A worker has said by its exit code that it must not be started again.
bool is_final(const RoundSettings& settings, const JobFailure& failure);
/// What the operator is told of it.
std::string why_final(const JobFailure& failure);
/// The same where all workers have ended alike, soon after their start.
std::string why_alike(const RoundSettings& settings, const JobFailure& failure);

/// @param restart counted from 1
Moment backoff_before(const RoundSettings& settings, int restart);

}  // namespace dtrun::rendezvous::rounds
