// Base64 with padding (RFC 4648, section 4): how JSON carries bytes. Pure. Own code, because
// Beast's is private to it, and OpenSSL's needs libcrypto, whose dlopen takes 1.6 ms; the launcher
// starts in 4.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dtrun::base {

std::string to_base64(std::string_view bytes);
/// nullopt for a text that is no base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace dtrun::base
