// What the kernels that are given a class for each row ask of it.
#pragma once

#include <cstdint>
#include <string_view>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// @param rows how many there are @throws PlaceError naming row and class
void require_class(std::string_view name, std::int64_t chosen, std::int64_t row,
                   std::int64_t classes, std::int64_t rows);

/// The classes of a device's rows, contiguous; waits for it. @throws as require_class()
LocalTensor device_classes(std::string_view name, const LocalTensor& target, std::int64_t classes,
                           std::int64_t ignored);

}  // namespace dtrun::tensors
