#include "dtrun/dtensor/mesh/rank_grid.h"

#include "dtrun/base/error.h"

namespace dtrun::dtensor {

RankGrid::RankGrid(std::initializer_list<RankGrid> rows) {
  shape_.push_back(static_cast<int>(rows.size()));
  if (rows.size() == 0) return;
  const std::vector<int>& row_shape = rows.begin()->shape_;
  for (const RankGrid& row : rows) {
    if (row.shape_ != row_shape) {
      throw base::Error(base::ErrorCode::kInvalidArgument,
                        "the rows of a mesh's ranks are not of one length", "",
                        "give a grid, such as {{0, 1}, {2, 3}}");
    }
    ranks_.insert(ranks_.end(), row.ranks_.begin(), row.ranks_.end());
  }
  shape_.insert(shape_.end(), row_shape.begin(), row_shape.end());
}

}  // namespace dtrun::dtensor
