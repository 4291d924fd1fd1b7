// The warning of a program that ends with a world of dist:: still open, as PyTorch's. Once per
// program.
#pragma once

namespace dtrun::runtime {

/// Stands for a world that dist:: has opened, from init_process_group() to destroy_process_group().
/// One that is still there when the program ends is warned of, whoever ends it: exit() from another
/// thread runs no destructor of the thread that holds it.
class OpenWorld {
 public:
  explicit OpenWorld(int rank);
  ~OpenWorld();
  OpenWorld(const OpenWorld&) = delete;
  OpenWorld& operator=(const OpenWorld&) = delete;

  void warn() const;

 private:
  int rank_;
};

}  // namespace dtrun::runtime
