// What ranks tell each other when they save, what they have of the state and what they have
// written, and when they load: what they want. Pure.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/block_shares.h"
#include "checkpoint/shard_file.h"
#include "dtrun/dtensor/checkpoint/manifest.h"
#include "dtrun/dtensor/checkpoint/plan.h"

namespace dtrun::dtensor::dcp {

struct RankOffer {
  std::vector<TensorPart> parts;
  Values values = {};
  Values rank_values = {};
  std::uint64_t split_above = 0;  ///< of SaveOptions
};
std::string to_text(const RankOffer& offer);
/// @throws Error kProtocol
RankOffer parse_offer(const std::string& text);

std::string to_text(const WrittenShard& shard);
/// Boxes are not among it: they are the plan's.
WrittenShard parse_shard(const std::string& text);

std::string to_text(const std::vector<Wish>& wishes);
std::vector<Wish> parse_wishes(const std::string& text);

}  // namespace dtrun::dtensor::dcp
