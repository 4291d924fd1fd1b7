// The errors that every Store raises in the same words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"

namespace dtrun::rendezvous {

/// A wait that ended for lack of time. Its first line is PyTorch's: programs look for it.
/// @param keys as they stand in the store
/// @param missing those of them that are not there; empty: unknown
/// @param store "the store at host:port"; empty: this process's own
base::Error wait_timeout(base::Deadline::Duration budget, const std::vector<std::string>& keys,
                         const std::vector<std::string>& missing, const std::string& store = {});
/// An operation whose answer did not come.
/// @param operation its name, in whatever case
/// @param why names the store
base::Error answer_timeout(std::string_view operation, base::Deadline::Duration took,
                           const std::vector<std::string>& keys, std::string why);
base::Error not_a_number(const std::string& key, const std::string& value);
/// @param arrived the counter's text, how many have come so far
base::Error barrier_timeout(base::Deadline::Duration budget, const std::string& key,
                            const std::string& arrived, std::int64_t world,
                            const std::string& store = {});
/// At least one of the keys is only the name of a queue.
base::Error not_a_value(const std::vector<std::string>& keys);
base::Error not_a_queue(const std::string& key);

}  // namespace dtrun::rendezvous
