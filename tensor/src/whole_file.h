// Files that are there whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// The pieces one after the other: into PATH.partial, which then takes the name. What was there
/// stays where this fails. @throws Error kSystem naming path and reason
void write_whole_file(const std::filesystem::path& path,
                      const std::vector<std::string_view>& pieces);

/// A tensor's elements. @param tensor contiguous, on the CPU
std::string_view bytes_of(const LocalTensor& tensor);

}  // namespace dtrun::tensors
