// numpy.lib.format: six bytes of magic, two of version, the length of the header, a Python literal
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } and the elements.
#include "dtrun/tensor/npy.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "whole_file.h"

namespace dtrun::tensors {
namespace {

static_assert(std::endian::native == std::endian::little);

using base::Error;
using base::ErrorCode;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAligned = 64;  ///< where the elements begin is a multiple of it
constexpr std::size_t kLongestHeader = 1 << 20;

struct NumpyType {
  std::string_view name;  ///< without the byte order
  DType dtype;
};
constexpr std::array<NumpyType, kDTypes - 1> kTypes = {{{"b1", DType::boolean},
                                                        {"i2", DType::i16},
                                                        {"i1", DType::i8},
                                                        {"u1", DType::u8},
                                                        {"i4", DType::i32},
                                                        {"i8", DType::i64},
                                                        {"f2", DType::f16},
                                                        {"f4", DType::f32},
                                                        {"f8", DType::f64}}};

std::string header_of(const LocalTensor& tensor) {
  const auto type = std::ranges::find(kTypes, tensor.dtype(), &NumpyType::dtype);
  if (type == kTypes.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("numpy has no type for {} tensors", dtype_name(tensor.dtype())), "",
                "to(DType::f32), which holds all its numbers");
  }
  std::string sizes;
  for (const std::int64_t size : tensor.shape()) sizes += fmt::format("{}, ", size);
  if (tensor.dim() > 1) sizes.resize(sizes.size() - 2);
  if (tensor.dim() == 1) sizes.pop_back();
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 item_size(tensor.dtype()) == 1 ? '|' : '<', type->name, sizes);
  const std::size_t used = kMagic.size() + 4 + text.size() + 1;
  text.append((kAligned - used % kAligned) % kAligned, ' ');
  return text + '\n';
}

[[noreturn]] void refuse(
    const std::filesystem::path& path, const std::string& found,
    const std::string& hint = "a file as numpy.save() and save_npy() write it") {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} cannot be read as .npy", path.string()),
              found, hint);
}

[[noreturn]] void refuse_by_system(const std::string& what, int error) {
  throw base::system_error(what, error, "");
}

struct Header {
  DType dtype;
  bool swapped;
  bool fortran_order;
  Shape shape;
};

/// The literal's value of a key, up to what ends it.
std::string_view value_of(const std::filesystem::path& path, std::string_view text,
                          std::string_view key, std::string_view ends) {
  std::size_t at = text.find(fmt::format("'{}'", key));
  if (at != std::string_view::npos) at = text.find(':', at);
  if (at != std::string_view::npos) at = text.find_first_not_of(" :", at);
  const std::size_t end = at == std::string_view::npos ? at : text.find_first_of(ends, at + 1);
  if (end == std::string_view::npos) refuse(path, fmt::format("its header has no {}", key));
  return text.substr(at, end - at);
}

Shape parse_shape(const std::filesystem::path& path, std::string_view text) {
  Shape shape;
  const std::string_view list = value_of(path, text, "shape", ")");
  const char* at = list.data() + 1;
  const char* const end = list.data() + list.size();
  while (true) {
    while (at != end && (*at == ' ' || *at == ',')) ++at;
    if (at == end) break;
    std::int64_t size = -1;
    const auto [next, error] = std::from_chars(at, end, size);
    if (list[0] != '(' || error != std::errc() || size < 0) {
      refuse(path, fmt::format("its header has the shape {})", list));
    }
    shape.push_back(size);
    at = next;
  }
  return shape;
}

Header parse_header(const std::filesystem::path& path, std::string_view text) {
  const std::string_view descr = value_of(path, text, "descr", ",}");
  const bool quoted = descr.size() == 5 && descr[0] == '\'' && descr[4] == '\'';
  const auto type =
      quoted ? std::ranges::find(kTypes, descr.substr(2, 2), &NumpyType::name) : kTypes.end();
  if (type == kTypes.end() || std::string_view("<>|=").find(descr[1]) == std::string_view::npos) {
    refuse(path, fmt::format("its elements are {}", descr),
           "astype() to bool, uint8, int32, int64, float16, float32 or float64 in numpy");
  }
  const std::string_view fortran = value_of(path, text, "fortran_order", ",}");
  if (fortran != "True" && fortran != "False") {
    refuse(path, fmt::format("its header has the fortran_order {}", fortran));
  }
  return {type->dtype, descr[1] == '>', fortran == "True", parse_shape(path, text)};
}

std::string read_bytes(const std::filesystem::path& path, std::istream& file, std::size_t count) {
  std::string bytes(count, '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(count))) {
    refuse(path, "it ends within its header");
  }
  return bytes;
}

Header read_header(const std::filesystem::path& path, std::istream& file) {
  std::string start(kMagic.size() + 2, '\0');
  if (!file.read(start.data(), static_cast<std::streamsize>(start.size())) ||
      !start.starts_with(kMagic)) {
    refuse(path, "it does not begin as one");
  }
  const int version = start[kMagic.size()];
  if (version < 1 || version > 3) refuse(path, fmt::format("its format is {}", version));
  const std::string field = read_bytes(path, file, version == 1 ? 2 : 4);
  std::size_t length = 0;
  for (std::size_t i = field.size(); i-- > 0;) {
    length = length * 256 + static_cast<unsigned char>(field[i]);
  }
  if (length > kLongestHeader) refuse(path, fmt::format("its header has {} bytes", length));
  return parse_header(path, read_bytes(path, file, length));
}

std::uintmax_t bytes_of_elements(const std::filesystem::path& path, const Header& header) {
  std::uintmax_t bytes = item_size(header.dtype);
  bool overflow = false;
  for (const std::int64_t size : header.shape)
    overflow = __builtin_mul_overflow(bytes, static_cast<std::uintmax_t>(size), &bytes) || overflow;
  // A size of 0 makes it 0, whatever the others are.
  if (std::ranges::find(header.shape, 0) != header.shape.end()) return 0;
  if (overflow) {
    refuse(path, fmt::format("its header has the shape {}, of more bytes than 64 bits count",
                             shape_to_string(header.shape)));
  }
  return bytes;
}

void swap_bytes(const LocalTensor& tensor) {
  const std::size_t size = item_size(tensor.dtype());
  char* const data = static_cast<char*>(tensor.data());
  for (std::size_t at = 0; at < tensor.bytes(); at += size) {
    std::reverse(data + at, data + at + size);
  }
}

}  // namespace

void save_npy(const std::filesystem::path& path, const LocalTensor& tensor) {
  const std::string header = header_of(tensor);
  if (header.size() > UINT16_MAX) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a tensor of {} dims as .npy", tensor.dim()),
                "its header has no room for the shape", "reshape() it to fewer dims");
  }
  const LocalTensor whole = tensor.to(kCpu).contiguous();
  const char version[] = {1, 0, static_cast<char>(header.size() % 256),
                          static_cast<char>(header.size() / 256)};
  write_whole_file(path, {kMagic, {version, sizeof(version)}, header, bytes_of(whole)});
}

LocalTensor load_npy(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) {
    throw Error(ErrorCode::kNotFound, "load_npy: " + path.string() + " is not there",
                "no file has that name", "another path; save_npy() writes such files");
  }
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    refuse_by_system("read " + path.string(), error ? error.value() : errno);
  }
  const Header header = read_header(path, file);
  const std::uintmax_t elements = size - static_cast<std::uintmax_t>(file.tellg());
  const std::uintmax_t wanted = bytes_of_elements(path, header);
  if (elements != wanted) {
    refuse(path, fmt::format("its elements take {} bytes, those of shape {} take {}", elements,
                             shape_to_string(header.shape), wanted));
  }
  Shape stored = header.shape;
  if (header.fortran_order) std::reverse(stored.begin(), stored.end());
  LocalTensor tensor = empty(stored, {header.dtype});
  if (!file.read(static_cast<char*>(tensor.data()), static_cast<std::streamsize>(wanted))) {
    refuse(path, "it ended while it was read");
  }
  if (header.swapped) swap_bytes(tensor);
  if (!header.fortran_order) return tensor;
  std::vector<int> dims;
  for (int d = tensor.dim(); d-- > 0;) dims.push_back(d);
  return tensor.permute(dims);
}

}  // namespace dtrun::tensors
