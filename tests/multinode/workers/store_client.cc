// store_client HOST PORT SECONDS wait|ask: waits for a key that nobody sets, or asks again and
// again, until the store is lost, which it must be after SECONDS of silence. Exit code 3 then.
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "dtrun/base/error.h"
#include "dtrun/rendezvous/tcp_store.h"

int main(int argc, char** argv) {
  if (argc != 5) return 64;
  try {
    const auto store = dtrun::rendezvous::connect_tcp_store(
        {.host = argv[1],
         .port = static_cast<std::uint16_t>(std::atoi(argv[2])),
         .lost_after = std::chrono::seconds(std::atoi(argv[3]))});
    const auto late = dtrun::base::Deadline::after(std::chrono::seconds(60));
    store->add("n", 1, late);
    fmt::print("reached\n");
    std::fflush(stdout);
    if (argv[4] == std::string("wait")) store->wait({"never"}, late);
    while (!late.expired()) store->add("n", 1, late);
  } catch (const dtrun::base::Error& error) {
    fmt::print("{}\n", error.what());
    return error.code() == dtrun::base::ErrorCode::kConnection ? 3 : 1;
  }
  return 1;
}
