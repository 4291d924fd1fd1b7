// SafetensorsHeader: what a .safetensors file says of its tensors: their names, dtypes, shapes and
// bytes. The format's one place. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/tensor/dtype.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::tensors {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0;  ///< of its bytes, counted from the header's end
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of their bytes, without gaps
  std::map<std::string, std::string> metadata = {};
};

/// Before the header stands its length.
inline constexpr std::size_t kSafetensorsLengthBytes = 8;

/// "F32".
std::string_view safetensors_dtype_name(DType dtype);
/// nullopt: dtrun has none of that name.
std::optional<DType> safetensors_dtype(std::string_view name);

/// Bytes of a tensor; a shape that no memory holds gives the largest number. @param shape without
/// negative sizes
std::uint64_t bytes_of_shape(const Shape& shape, DType dtype);

/// How a file begins: the length, and the header, which ends at a multiple of eight bytes.
std::string safetensors_beginning(const SafetensorsHeader& header);

/// Of the header. @param beginning of the file, eight bytes or less where it has no more @param
/// file for messages @throws Error kInvalidArgument for a header that the file has no room for
std::uint64_t safetensors_header_length(std::string_view beginning, std::uint64_t file_bytes,
                                        const std::string& file);

/// @param text the header @param data_bytes those that follow it @throws Error kInvalidArgument for
/// gaps, overlaps, bytes that belong to no tensor, a name that stands twice and another dtype;
/// kProtocol for what is no JSON
SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                           const std::string& file);

}  // namespace dtrun::tensors
