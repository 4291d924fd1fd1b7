// PlaceError: a number in a list is no position, or no class. The error knows where in the list it
// stands, so that a rank that has a part of the list can say where that is in the whole.
#pragma once

#include <cstdint>
#include <string>

#include "dtrun/base/error.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::tensors {

class PlaceError : public base::Error {
 public:
  /// "gather: position " 3 " of dim 0 is 9, in positions of shape " [4] " into f32[6, 2]".
  struct Words {
    std::string before;
    std::string after;
    bool tells_shape = false;
    std::string into = {};
    std::string why = {};
    std::string remedy = {};
  };
  /// @param place in row-major order @param shape of the list
  PlaceError(std::int64_t place, const Shape& shape, const Words& words);

  std::int64_t place() const { return place_; }
  const Shape& shape() const { return shape_; }
  PlaceError into(const std::string& tensor) const;
  /// Without the tensor that they point into, of which the rank has a part, too.
  PlaceError in_whole(std::int64_t place, const Shape& whole) const;

 private:
  std::int64_t place_;
  Shape shape_;
  Words words_;
};

}  // namespace dtrun::tensors
