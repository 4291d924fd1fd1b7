// cuda/reductions.h of a build without CUDA.
#include "cuda/reductions.h"

#include "no_cuda/absent.h"

namespace dtrun::tensors::cuda {

void fold_elements(const LocalTensor&, const LocalTensor&, const std::vector<bool>&, Fold,
                   const FoldNumbers&) {
  throw_absent();
}
void scan_elements(const LocalTensor&, const LocalTensor&, int, ScanJoin, ScanFrom) {
  throw_absent();
}

}  // namespace dtrun::tensors::cuda
