// Vector file: the cases of tests/vectors, as JSON objects and as the values in them.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::test {

using VectorCase = boost::json::object;

/// @param name "layout", "redistribute" or "ops"
std::vector<VectorCase> read_vector_file(const std::string& name);
std::vector<VectorCase> read_vector_path(const std::string& path);
/// Where the unpacked files lie.
std::string vector_folder();

std::string text_of(const boost::json::value& value);
std::vector<std::string> texts_of(const boost::json::value& list);
std::vector<int> ints_of(const boost::json::value& list);
std::vector<std::int64_t> sizes_of(const boost::json::value& list);
/// Numbers, and "nan", "inf", "-inf".
std::vector<double> numbers_of(const boost::json::value& list);

}  // namespace dtrun::test
