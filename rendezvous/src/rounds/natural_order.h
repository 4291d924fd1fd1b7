// The order of names as people count: node2 before node10.
#pragma once

#include <string_view>

namespace dtrun::rendezvous {

/// Runs of digits compare as numbers.
bool naturally_before(std::string_view left, std::string_view right);

}  // namespace dtrun::rendezvous
