// Picking elements by number.
#include "dtensor/operators/operators.h"

namespace dtrun::dtensor::vectors {

void add_index(Operators&) {}

}  // namespace dtrun::dtensor::vectors
