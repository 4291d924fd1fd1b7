#include "algorithm.h"

#include <fmt/core.h>

namespace dtrun::collectives {

namespace {

std::string why_messages(const Situation& now) {
  if (now.place.ranks == 1) return "there is no other rank";
  if (now.place.sharing != Sharing::all)
    return fmt::format("not all {} ranks share memory", now.place.ranks);
  if (now.empty_parts == EmptyParts::stay)
    return "the ranks have agreed on the sizes, so empty parts are not sent";
  return fmt::format("each of {} ranks sends to the others", now.place.ranks);
}

/// Why bytes that do not lie in shared tensors go by messages, and not by stages.
std::string why_not_stages(const Situation& now) {
  if (goes_by_lent_messages(now))
    return "of so long ones each is copied once if the kernel allows it";
  if (now.place.ranks > kMostOnStage)
    return fmt::format("stages serve up to {} ranks", kMostOnStage);
  return fmt::format("up to {} ranks share a core, and would wait for one another at each step",
                     now.place.ranks_per_core);
}

/// How a call that begins so goes on where not all lies in shared tensors.
Way way_elsewhere(const Situation& now, Way way) {
  return way == Way::in_place_or_messages ? way_of_messages(now) : way;
}

/// "by posts"
std::string by_way(Way way) {
  return fmt::format("{}{}", way == Way::in_place_or_messages ? "" : "by ", way_name(way));
}

}  // namespace

const char* way_name(Way way) {
  switch (way) {
    case Way::post:
      return "posts";
    case Way::stages:
      return "stages";
    case Way::in_place_or_messages:
      return "in place or by messages";
    case Way::parcels:
      return "parcels";
    case Way::messages:
      return "messages";
    case Way::rounds:
      return "rounds";
    case Way::chunks:
      return "messages in chunks";
    case Way::machines:
      return "machines";
  }
  return "unknown";
}

std::string explain(const Situation& now, Way way) {
  std::string text;
  switch (way) {
    case Way::post:
      text = fmt::format("{} bytes of each of {} ranks, which share memory", now.bytes,
                         now.place.ranks);
      break;
    case Way::stages:
      text = fmt::format("{} bytes of each of {} ranks, which share memory, are too many for posts",
                         now.bytes, now.place.ranks);
      break;
    case Way::in_place_or_messages:
      text = fmt::format(
          "{} bytes of each of {} ranks, which share memory; what does not lie in shared tensors "
          "goes {}, not by stages: {}",
          now.bytes, now.place.ranks, by_way(way_of_messages(now)), why_not_stages(now));
      break;
    case Way::parcels:
      text = fmt::format(
          "each of {} ranks, which share memory, knows how long the parts are that it gives",
          now.place.ranks);
      break;
    case Way::messages:
      text = why_messages(now);
      break;
    case Way::rounds:
      text = fmt::format("{} ranks on {} machines; {} bytes of each travel with those of others",
                         now.place.ranks, now.place.machines, now.bytes);
      break;
    case Way::chunks:
      text = fmt::format("{}; {} bytes are too many to go whole", why_messages(now), now.bytes);
      break;
    case Way::machines:
      text =
          fmt::format("{} ranks on {} machines; {} bytes shall not cross the network once a rank",
                      now.place.ranks, now.place.machines, now.bytes);
      break;
  }
  if (now.crowding == Crowding::crowded) text += "; there are more ranks than cores";
  Situation without = now;
  without.limits = &kDefaultLimits;
  const Way other = choose_way(without);
  if (other != way) {
    text += fmt::format("; the cost table says so, else {}", by_way(other));
  } else if (const Way rest = way_elsewhere(without, way); rest != way_elsewhere(now, way)) {
    text += fmt::format("; the cost table says so, else what lies elsewhere {}", by_way(rest));
  }
  return fmt::format("{}: {}", by_way(way), text);
}

}  // namespace dtrun::collectives
