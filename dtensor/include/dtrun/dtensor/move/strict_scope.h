// StrictScope: while one stands, an operator of its thread that would have to redistribute an
// operand, which sends data that nobody asked for, throws an Error instead, before anything is
// sent. redistribute(), full_tensor(), distribute_tensor() and backward() have been asked for; what
// each rank does by itself costs nothing.
#pragma once

#include <memory>

namespace dtrun::dtensor {

class MoveObserver;

class StrictScope {
 public:
  StrictScope();
  ~StrictScope();
  StrictScope(const StrictScope&) = delete;
  StrictScope& operator=(const StrictScope&) = delete;

 private:
  std::unique_ptr<MoveObserver> observer_;
};

}  // namespace dtrun::dtensor
