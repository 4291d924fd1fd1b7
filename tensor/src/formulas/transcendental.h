// vector_math::exp and its kind, of the machine that the formulas are compiled for.
#pragma once

#ifdef __CUDACC__
#include "cuda/vector_math.h"
#else
#include "kernels/vector_math.h"
#endif
