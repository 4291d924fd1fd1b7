// Ranks of dist:: as threads of the test: dist:: is per thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/runtime/dist.h"

namespace dtrun::dist {

struct Ended {
  std::optional<base::Error> error;
  std::string other;  ///< the text of any other exception
};

/// Runs the body on every rank of a new world, between init and destroy. What each rank threw.
std::vector<Ended> run_failing_dist_ranks(int size, const std::function<void(int rank)>& body);
/// Fails the test where a rank throws.
void run_dist_ranks(int size, const std::function<void(int rank)>& body);

/// Runs the body on every rank without a world. @param init the options of rank r, which meet
void run_uninitialized_ranks(int size,
                             const std::function<void(const InitProcessGroup& mine)>& body);

}  // namespace dtrun::dist
