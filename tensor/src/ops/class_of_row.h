// What the kernels that are given a class for each row ask of it.
#pragma once

#include <cstdint>
#include <string_view>

namespace dtrun::tensors {

/// @throws Error kInvalidArgument naming row and class
void require_class(std::string_view name, std::int64_t chosen, std::int64_t row,
                   std::int64_t classes);

}  // namespace dtrun::tensors
