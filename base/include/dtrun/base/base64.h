// Base64 with padding (RFC 4648, section 4): how JSON carries bytes. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dtrun::base {

std::string to_base64(std::string_view bytes);
/// nullopt for a text that is no base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace dtrun::base
