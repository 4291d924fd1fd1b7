#include "dtrun/tensor/place_error.h"

namespace dtrun::tensors {
namespace {

std::string summary_of(std::int64_t place, const Shape& shape, const PlaceError::Words& words) {
  const std::string where = words.before + std::to_string(place) + words.after;
  return where + (words.tells_shape ? shape_to_string(shape) : "") + words.into;
}

}  // namespace

PlaceError::PlaceError(std::int64_t place, const Shape& shape, const Words& words)
    : Error(base::ErrorCode::kInvalidArgument, summary_of(place, shape, words), words.why,
            words.remedy),
      place_(place),
      shape_(shape),
      words_(words) {}

PlaceError PlaceError::into(const std::string& tensor) const {
  Words words = words_;
  words.into = " into " + tensor;
  return {place_, shape_, words};
}

PlaceError PlaceError::in_whole(std::int64_t place, const Shape& whole) const {
  Words words = words_;
  words.into.clear();
  return {place, whole, words};
}

}  // namespace dtrun::tensors
