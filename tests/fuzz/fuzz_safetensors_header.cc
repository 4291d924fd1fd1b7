// A .safetensors file's beginning: read, or refused with an Error; entries lie one after the other
// within the file, and what is read is written and read again alike.
#include <string>

#include "dtrun/base/error.h"
#include "dtrun/tensor/safetensors_header.h"
#include "fuzz/fuzz_input.h"

using namespace dtrun::tensors;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  try {
    const std::uint64_t length =
        safetensors_header_length(file.substr(0, kSafetensorsLengthBytes), size, "fuzz");
    const std::uint64_t bytes = size - kSafetensorsLengthBytes - length;
    const SafetensorsHeader header =
        parse_safetensors_header(file.substr(kSafetensorsLengthBytes, length), bytes, "fuzz");
    std::uint64_t at = 0;
    for (const SafetensorsEntry& entry : header.entries) {
      FUZZ_CHECK(entry.begin == at && entry.end - at == bytes_of_shape(entry.shape, entry.dtype),
                 "an entry that does not follow the one before it");
      at = entry.end;
    }
    FUZZ_CHECK(at == bytes, "bytes of no entry");
    const std::string again = safetensors_beginning(header).substr(kSafetensorsLengthBytes);
    FUZZ_CHECK(
        parse_safetensors_header(again, bytes, "fuzz").entries.size() == header.entries.size(),
        "a header that is written differs from what is read");
  } catch (const dtrun::base::Error&) {
    return 0;
  }
  return 0;
}
