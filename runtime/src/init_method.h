// InitMethod: where the ranks of a job meet, as the user writes it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dtrun::runtime {

struct InitMethod {
  enum class Kind { environment, tcp, file };
  Kind kind = Kind::environment;
  std::string host;        ///< tcp
  std::uint16_t port = 0;  ///< tcp
  std::string path;        ///< file
  std::optional<int> rank;
  std::optional<int> world_size;
};

/// "env://", "tcp://HOST:PORT", "file:///PATH", each with "?rank=R&world_size=N" or one of them.
/// @throws Error kInvalidArgument with the list of what there is
InitMethod parse_init_method(const std::string& text);

}  // namespace dtrun::runtime
