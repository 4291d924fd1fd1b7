// DTRUN_MULTIVERSION: before an inner loop, compiles it for several generations of x86; the loader
// picks one. ThreadSanitizer cannot start a program with such functions, and clang does not take
// them as templates, so there it is empty.
#pragma once

#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define DTRUN_MULTIVERSION \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DTRUN_MULTIVERSION
#endif

/// Before a loop none of whose rounds needs another's results.
#if defined(__clang__)
#define DTRUN_INDEPENDENT_ROUNDS _Pragma("clang loop vectorize(assume_safety)")
#else
#define DTRUN_INDEPENDENT_ROUNDS _Pragma("GCC ivdep")
#endif

/// Before a function that must be part of its callers: so it is compiled for their processors.
#define DTRUN_INLINED __attribute__((always_inline)) inline
