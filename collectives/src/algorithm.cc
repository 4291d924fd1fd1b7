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
  if (goes_by_lent_messages(now))
    return fmt::format("{} bytes of each of {} ranks are read where they lie", now.bytes,
                       now.place.ranks);
  return fmt::format(
      "{} bytes of each of {} ranks are too many for posts, and the ranks for stages", now.bytes,
      now.place.ranks);
}

}  // namespace

const char* way_name(Way way) {
  switch (way) {
    case Way::post:
      return "posts";
    case Way::stages:
      return "stages";
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
  if (const Way other = choose_way(without); other != way)
    text += fmt::format("; the cost table says so, else by {}", way_name(other));
  return fmt::format("by {}: {}", way_name(way), text);
}

}  // namespace dtrun::collectives
