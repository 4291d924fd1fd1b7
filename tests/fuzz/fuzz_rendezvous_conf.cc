// The value of --rdzv_conf. Input: a byte for the way to meet, then the text. What must hold: what
// is read is in range, and read again without its quotes is the same; what is not is a kUsage.
#include "options/rendezvous_conf.h"

#include "dtrun/base/error.h"
#include "fuzz/fuzz_input.h"

namespace dtrun::fuzz {
namespace {

using launcher::NodeCount;
using launcher::Rendezvous;
using launcher::RendezvousConf;
using Seconds = std::optional<std::chrono::nanoseconds>;

void check_in_range(const RendezvousConf& conf) {
  for (const Seconds& time : {conf.join_timeout, conf.last_call_timeout, conf.close_timeout,
                              conf.keep_alive_interval, conf.read_timeout})
    FUZZ_CHECK(!time || (*time > time->zero() && *time <= std::chrono::seconds(1'000'000'000)),
               "a time out of range");
  const int attempts = conf.keep_alive_max_attempt.value_or(1);
  FUZZ_CHECK(attempts >= 1 && attempts <= 1'000'000, "attempts out of range");
  FUZZ_CHECK(conf.ssl_cert_key.empty() || !conf.ssl_cert.empty(), "a key without a certificate");
}

bool same(const RendezvousConf& a, const RendezvousConf& b) {
  return a.keys == b.keys && a.join_timeout == b.join_timeout &&
         a.last_call_timeout == b.last_call_timeout && a.close_timeout == b.close_timeout &&
         a.keep_alive_interval == b.keep_alive_interval &&
         a.keep_alive_max_attempt == b.keep_alive_max_attempt && a.read_timeout == b.read_timeout &&
         a.hosting == b.hosting && a.store_type == b.store_type && a.protocol == b.protocol &&
         a.ssl_cert == b.ssl_cert && a.ssl_cert_key == b.ssl_cert_key && a.ca_cert == b.ca_cert &&
         a.token_file == b.token_file && a.proof == b.proof && a.store_token == b.store_token;
}

}  // namespace
}  // namespace dtrun::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrun::fuzz;
  FuzzInput input(data, size);
  const std::uint8_t way = input.byte();
  const std::string text(input.rest());
  try {
    const RendezvousConf conf = dtrun::launcher::parse_rendezvous_conf(text);
    check_in_range(conf);
    // Quotes around the whole are none of it, unless it has its own.
    FUZZ_CHECK(same(conf, dtrun::launcher::parse_rendezvous_conf("'" + text + "'")) ||
                   text.find_first_of("'\"") != std::string::npos,
               "other values in quotes");
    const auto unused = keys_without_effect(conf, static_cast<Rendezvous>(way % 4),
                                            way & 4 ? NodeCount::kElastic : NodeCount::kFixed);
    FUZZ_CHECK(unused.size() <= conf.keys.size(), "more keys than there are");
  } catch (const dtrun::base::Error& error) {
    FUZZ_CHECK(error.code() == dtrun::base::ErrorCode::kUsage, error.what());
  }
  return 0;
}
