// .npy: numpy's file of one array (format 1.0 to 3.0, numpy.lib.format). bf16 has no type there.
// Thread-safe for different paths.
#pragma once

#include <filesystem>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// Row-major, little-endian, format 1.0. The file is there whole or not at all.
/// @throws Error kInvalidArgument for bf16; kSystem naming path and reason
void save_npy(const std::filesystem::path& path, const LocalTensor& tensor);
/// Any of numpy's booleans, 8-bit unsigned, 32- and 64-bit signed integers and 16-, 32- and 64-bit
/// floats, of either byte order; Fortran order gives a transposed view.
/// @throws Error kNotFound; kInvalidArgument where the file is none, is cut short or too long, or
/// holds another type, naming the path and what was found
LocalTensor load_npy(const std::filesystem::path& path);

}  // namespace dtrun::tensors
