// Which failures of workers are worth a restart, and when it begins. Pure.
#pragma once

#include <string>

#include "dtrun/rendezvous/round_messages.h"

namespace dtrun::rendezvous::rounds {

/// A worker has said by its exit code that it must not be started again.
bool is_final(const RoundSettings& settings, const JobFailure& failure);
/// The message to the operator about it.
std::string why_final(const JobFailure& failure);
/// Two failures of workers that have the same cause as far as can be told: the same exit code or
/// signal, or that they could not be started for the same reason. Which rank came first is chance
/// where several fail.
bool is_alike(const JobFailure& one, const JobFailure& other);
/// The message to the operator about the second of two alike failures.
std::string why_alike(const RoundSettings& settings, const JobFailure& failure);

/// @param restart counted from 1
Moment backoff_before(const RoundSettings& settings, int restart);

}  // namespace dtrun::rendezvous::rounds
