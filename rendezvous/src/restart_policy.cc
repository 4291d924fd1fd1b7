#include "restart_policy.h"

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

std::string why_alike(const RoundSettings& settings, const JobFailure& failure) {
  return fmt::format(
      "the job is not started again: all ranks have ended with exit code {} within {} of their "
      "start, and would do so again (--give_up_on=none starts them all the same)",
      failure.code, base::format_duration(settings.alike_window));
}

Moment backoff_before(const RoundSettings& settings, int restart) {
  Moment pause = std::min(settings.backoff, settings.most_backoff);
  for (int i = 1; i < restart && pause < settings.most_backoff; ++i)
    pause = pause > settings.most_backoff / 2 ? settings.most_backoff : pause * 2;
  return pause;
}

}  // namespace dtrun::rendezvous::rounds
