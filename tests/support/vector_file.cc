#include "support/vector_file.h"

#include <boost/json/array.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "dtrun/base/json.h"

namespace dtrun::test {

std::string vector_folder() {
  return DTRUN_VECTOR_FOLDER;
}

std::string given_vector_folder() {
  const char* const given = std::getenv("DTRUN_TEST_VECTORS");
  return given != nullptr ? given : "";
}

std::vector<VectorCase> read_vector_file(const std::string& name) {
  const std::string given = given_vector_folder() + "/" + name + ".jsonl";
  if (std::filesystem::exists(given)) return read_vector_path(given);
  return read_vector_path(vector_folder() + "/" + name + ".jsonl");
}

std::vector<VectorCase> read_vector_path(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::vector<VectorCase> cases;
  for (std::string line; std::getline(file, line);) {
    cases.push_back(base::parse_json(line, path).as_object());
  }
  return cases;
}

std::string text_of(const boost::json::value& value) {
  return std::string(value.as_string());
}

std::vector<std::string> texts_of(const boost::json::value& list) {
  std::vector<std::string> texts;
  for (const boost::json::value& item : list.as_array()) texts.push_back(text_of(item));
  return texts;
}

std::vector<int> ints_of(const boost::json::value& list) {
  std::vector<int> numbers;
  for (const boost::json::value& item : list.as_array()) {
    numbers.push_back(static_cast<int>(item.as_int64()));
  }
  return numbers;
}

std::vector<std::int64_t> sizes_of(const boost::json::value& list) {
  std::vector<std::int64_t> sizes;
  for (const boost::json::value& item : list.as_array()) sizes.push_back(item.as_int64());
  return sizes;
}

std::vector<double> numbers_of(const boost::json::value& list) {
  std::vector<double> numbers;
  for (const boost::json::value& item : list.as_array()) {
    if (!item.is_string()) {
      numbers.push_back(item.to_number<double>());
    } else if (item.as_string() == "nan") {
      numbers.push_back(std::numeric_limits<double>::quiet_NaN());
    } else {
      const double infinity = std::numeric_limits<double>::infinity();
      numbers.push_back(item.as_string() == "inf" ? infinity : -infinity);
    }
  }
  return numbers;
}

}  // namespace dtrun::test
