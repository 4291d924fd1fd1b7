#include "whole_file.h"

#include <cerrno>
#include <fstream>
#include <system_error>

#include "dtrun/base/error.h"

namespace dtrun::tensors {

void write_whole_file(const std::filesystem::path& path,
                      const std::vector<std::string_view>& pieces) {
  const std::filesystem::path partial = path.string() + ".partial";
  errno = 0;
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  for (const std::string_view piece : pieces)
    file.write(piece.data(), static_cast<std::streamsize>(piece.size()));
  file.close();
  std::error_code error(errno, std::generic_category());
  if (file) std::filesystem::rename(partial, path, error);
  if (file && !error) return;
  std::error_code none;
  std::filesystem::remove(partial, none);
  throw base::system_error("write " + path.string(), error.value(), "");
}

std::string_view bytes_of(const LocalTensor& tensor) {
  return {static_cast<const char*>(tensor.data()), tensor.bytes()};
}

}  // namespace dtrun::tensors
