// The errors that every Store raises in the same words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"

namespace dtrun::rendezvous {

/// A wait that ended for lack of time. Its first line is PyTorch's: programs look for it.
/// @param keys as they stand in the store
/// @param missing those of them that are not there; empty: unknown
base::Error wait_timeout(base::Deadline::Duration budget, const std::vector<std::string>& keys,
                         const std::vector<std::string>& missing);
base::Error not_a_number(const std::string& key, const std::string& value);
/// @param arrived the counter's text, how many have come so far
base::Error barrier_timeout(base::Deadline::Duration budget, const std::string& key,
                            const std::string& arrived, std::int64_t world);
/// Of the keys, at least one is the name of a queue only.
base::Error not_a_value(const std::vector<std::string>& keys);
base::Error not_a_queue(const std::string& key);

}  // namespace dtrun::rendezvous
