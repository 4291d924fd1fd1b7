// ArgumentError: refuses an operand of an operator by its number, so that whoever adds the operator
// to the error tells its operands, too.
#pragma once

#include "dtrun/base/error.h"

namespace dtrun::dtensor {

class ArgumentError : public base::Error {
 public:
  using base::Error::Error;
};

}  // namespace dtrun::dtensor
