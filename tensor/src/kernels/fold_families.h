// The kernels of fold_kernel(), by family: each family is a translation unit, for these loops are
// expensive to compile.
#pragma once

#include "kernels/fold_kernel.h"

namespace dtrun::tensors {

/// extreme_fold.cc: maximum, minimum. @param takes f64, f32 or i64
FoldKernel extreme_fold(Fold fold, DType takes);

/// index_fold.cc: index_of_maximum, index_of_minimum. @param takes f64, f32 or i64
FoldKernel index_fold(Fold fold, DType takes);

/// norm_fold.cc. @param takes f64 or f32; bf16 for norm_1 and norm_2
FoldKernel norm_fold(Fold fold, DType takes);

/// statistic_fold.cc: variance, deviation, log_sum_exp. @param takes f64 or f32
FoldKernel statistic_fold(Fold fold, DType takes);

}  // namespace dtrun::tensors
