#include "tensor/golden_file.h"

#include <boost/json/array.hpp>
#include <fstream>
#include <stdexcept>

#include "dtrun/base/env.h"
#include "dtrun/base/json.h"

namespace dtrun::tensors {
namespace {

unsigned hex_digit(char digit) {
  return static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

}  // namespace

std::vector<GoldenCase> read_golden_file(const std::string& name) {
  // scripts/gpu-check takes them to another machine.
  const std::string folder = base::get_env("DTRUN_GOLDEN_FOLDER").value_or(DTRUN_GOLDEN_FOLDER);
  const std::string path = folder + "/" + name + ".jsonl";
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::vector<GoldenCase> cases;
  for (std::string line; std::getline(file, line);) {
    cases.push_back(base::parse_json(line, path).as_object());
  }
  return cases;
}

LocalTensor golden_tensor(const boost::json::value& fields) {
  const boost::json::object& object = fields.as_object();
  const boost::json::string& digits = object.at("storage").as_string();
  StoragePointer storage = Storage::allocate(digits.size() / 2, kCpu);
  unsigned char* bytes = static_cast<unsigned char*>(storage->data());
  for (std::size_t i = 0; i < storage->bytes(); ++i) {
    bytes[i] =
        static_cast<unsigned char>(hex_digit(digits[2 * i]) << 4 | hex_digit(digits[2 * i + 1]));
  }
  return LocalTensor(std::move(storage), parse_dtype(std::string(object.at("dtype").as_string())),
                     golden_integers(object.at("shape")), golden_integers(object.at("strides")),
                     object.at("offset").as_int64());
}

std::vector<std::int64_t> golden_integers(const boost::json::value& list) {
  std::vector<std::int64_t> numbers;
  for (const boost::json::value& item : list.as_array()) numbers.push_back(item.as_int64());
  return numbers;
}

}  // namespace dtrun::tensors
