// Golden file: what PyTorch printed and computed, one JSON object per line, made by a script in
// tests/vectors, which says what the fields mean.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

using GoldenCase = boost::json::object;

/// @param name of a file in tests/vectors, without its endings
std::vector<GoldenCase> read_golden_file(const std::string& name);
/// The tensor that `fields` describe, with its strides.
LocalTensor golden_tensor(const boost::json::value& fields);
std::vector<std::int64_t> golden_integers(const boost::json::value& list);

}  // namespace dtrun::tensors
