// model.safetensors.index.json, whoever has written it: read, or refused with an Error; its files
// are names in its folder, and what is read is written and read again alike.
#include <string>

#include "checkpoint/safetensors_index.h"
#include "dtrun/base/error.h"
#include "fuzz/fuzz_input.h"

using namespace dtrun::dtensor::dcp;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string body(reinterpret_cast<const char*>(data), size);
  // Few inputs have a map of their own accord.
  for (const std::string& text : {body, "{\"weight_map\":{" + body + "}}"}) {
    try {
      const SafetensorsIndex index = parse_index(text, "fuzz");
      for (const auto& [name, file] : index.files)
        FUZZ_CHECK(file.find('/') == std::string::npos && file[0] != '.', "a file elsewhere");
      FUZZ_CHECK(parse_index(index_text(index, size), "fuzz").files == index.files,
                 "an index that is written differs from what is read");
    } catch (const dtrun::base::Error&) {
      continue;
    }
  }
  return 0;
}
