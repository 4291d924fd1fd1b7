// manifest.json, whoever has written it: read, or refused with an Error; what is read is written
// and read again alike. Its last line is made to fit, or nothing else would ever be reached.
#include <fmt/core.h>

#include <string>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/checkpoint/manifest.h"
#include "fuzz/fuzz_input.h"

using namespace dtrun::dtensor::dcp;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string body(reinterpret_cast<const char*>(data), size);
  for (const std::string& text :
       {body, body + fmt::format(",\n\"checksum\":\"{:016x}\"}}\n", checksum(body))}) {
    try {
      const std::string written = manifest_text(parse_manifest(text, "fuzz"));
      FUZZ_CHECK(manifest_text(parse_manifest(written, "fuzz")) == written,
                 "a manifest that is written differs from what is read");
    } catch (const dtrun::base::Error&) {
      continue;
    }
  }
  return 0;
}
