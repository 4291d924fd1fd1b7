// The texts that say where nodes meet and how many there are: HostPort, NodeRange, PortRange, and
// the record of store_type=file. Input: a byte that chooses, then the text. What must hold: what is
// read is in range and, written again, is read as the same; what is not is a kInvalidArgument.
#include <fmt/core.h>

#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "fuzz/fuzz_input.h"
#include "meeting/head_record.h"
#include "options/node_range.h"
#include "options/port_range.h"

namespace dtrun::fuzz {
namespace {

using launcher::HeadRecord;
using launcher::NodeRange;
using launcher::PortRange;

void check_host_port(std::string_view text) {
  const base::HostPort read = base::HostPort::parse(text);
  FUZZ_CHECK(!read.host.empty(), "an empty host");
  const base::HostPort again = base::HostPort::parse(read.to_string());
  FUZZ_CHECK(again.host == read.host && again.port == read.port, "another host or port");
}

void check_node_range(std::string_view text) {
  const NodeRange read = launcher::parse_node_range(text);
  FUZZ_CHECK(1 <= read.least && read.least <= read.most, "out of range");
  const NodeRange again = launcher::parse_node_range(fmt::format("{}:{}", read.least, read.most));
  FUZZ_CHECK(again.least == read.least && again.most == read.most, "another range");
}

void check_port_range(std::string_view text) {
  const PortRange read = launcher::parse_port_range(text);
  FUZZ_CHECK(1 <= read.first && read.first <= read.last, "out of range");
  const PortRange again = launcher::parse_port_range(fmt::format("{}:{}", read.first, read.last));
  FUZZ_CHECK(again.first == read.first && again.last == read.last, "another range");
}

void check_head_record(std::string_view text) {
  const std::optional<HeadRecord> read = launcher::parse_head_record(text);
  if (!read) return;
  const std::string written = launcher::format_head_record(*read);
  FUZZ_CHECK(launcher::parse_head_record(written) == read, "another record");
}

}  // namespace
}  // namespace dtrun::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrun::fuzz;
  FuzzInput input(data, size);
  constexpr decltype(&check_host_port) kChecks[] = {check_host_port, check_node_range,
                                                    check_port_range, check_head_record};
  const auto check = kChecks[input.byte() % std::size(kChecks)];
  try {
    check(input.rest());
  } catch (const dtrun::base::Error& error) {
    FUZZ_CHECK(error.code() == dtrun::base::ErrorCode::kInvalidArgument, error.what());
  }
  return 0;
}
