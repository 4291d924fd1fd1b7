// Texts of others, before they reach a terminal or a log.
#pragma once

#include <string>
#include <string_view>

namespace dtrun::rendezvous {

/// A text of somebody unknown, fit for a terminal: what is not printable is replaced.
std::string printable(std::string_view text);

}  // namespace dtrun::rendezvous
