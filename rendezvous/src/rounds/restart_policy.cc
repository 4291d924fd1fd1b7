#include "rounds/restart_policy.h"

#include <fmt/core.h>

#include <algorithm>

#include "dtrun/base/deadline.h"

namespace dtrun::rendezvous::rounds {

bool is_final(const RoundSettings& settings, const JobFailure& failure) {
  return failure.rank >= 0 && failure.signal == 0 &&
         std::ranges::find(settings.final_codes, failure.code) != settings.final_codes.end();
}

std::string why_final(const JobFailure& failure) {
  return fmt::format("the job is not started again: exit code {} is among those of --give_up_on",
                     failure.code);
}

bool is_alike(const JobFailure& one, const JobFailure& other) {
  const bool of_ranks = one.rank >= 0 && other.rank >= 0;
  const bool of_nodes = one.rank < 0 && other.rank < 0 && one.text == other.text;
  return one.code == other.code && one.signal == other.signal && (of_ranks || of_nodes);
}

std::string why_alike(const RoundSettings& settings, const JobFailure& failure) {
  return fmt::format(
      "the job is not started again: twice in a row it has failed in the same way within {} of its "
      "start ({}), and --give_up_on asks to end it then",
      base::format_duration(settings.alike_window), failure.describe());
}

Moment backoff_before(const RoundSettings& settings, int restart) {
  Moment pause = std::min(settings.backoff, settings.most_backoff);
  for (int i = 1; i < restart && pause < settings.most_backoff; ++i)
    pause = pause > settings.most_backoff / 2 ? settings.most_backoff : pause * 2;
  return pause;
}

}  // namespace dtrun::rendezvous::rounds
