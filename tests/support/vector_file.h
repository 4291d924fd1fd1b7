// Vector file: the cases of tests/vectors, as JSON objects and as the values in them; or those of
// another folder in the same format, which DTRUN_TEST_VECTORS names. A file that is not there is
// read from the tree.
#pragma once

#include <gtest/gtest.h>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace dtrun::test {

using VectorCase = boost::json::object;

/// @param name "layout", "redistribute" or "ops"
std::vector<VectorCase> read_vector_file(const std::string& name);
std::vector<VectorCase> read_vector_path(const std::string& path);
/// What DTRUN_TEST_VECTORS says; empty: nothing.
std::string given_vector_folder();
/// Where the unpacked files of the tree lie.
std::string vector_folder();
/// How many cases the tree has is known; of a folder that was given it is not.
inline void expect_cases(std::size_t found, std::size_t in_the_tree) {
  if (given_vector_folder().empty()) {
    EXPECT_EQ(found, in_the_tree);
  } else {
    std::printf("%zu cases\n", found);
  }
}

std::string text_of(const boost::json::value& value);
std::vector<std::string> texts_of(const boost::json::value& list);
std::vector<int> ints_of(const boost::json::value& list);
std::vector<std::int64_t> sizes_of(const boost::json::value& list);
/// Numbers, and "nan", "inf", "-inf".
std::vector<double> numbers_of(const boost::json::value& list);

}  // namespace dtrun::test
