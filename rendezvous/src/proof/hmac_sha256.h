// HMAC-SHA256 (RFC 2104, FIPS 180-4), by which a token proves itself. Pure; its time depends on the
// lengths alone. Own code: OpenSSL's libcrypto takes 2.6 ms of CPU time to be opened and asked for
// its first code, in every dtrun and every rank of a job with a token; one rank starts in 3.7 ms.
// Nettle's takes 0.3 ms, and is not on every node. systemd has its own for the same reason.
#pragma once

#include <array>
#include <string_view>

namespace dtrun::rendezvous {

std::array<unsigned char, 32> hmac_sha256(std::string_view secret, std::string_view message);

}  // namespace dtrun::rendezvous
