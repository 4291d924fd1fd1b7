// DTRUN_BOTH: a function that runs on the host and, where nvcc compiles it, on CUDA devices too, so
// that both sides compute the same bits.
#pragma once

#ifdef __CUDACC__
#define DTRUN_BOTH __host__ __device__
#else
#define DTRUN_BOTH
#endif
