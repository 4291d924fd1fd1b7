// raw_syscall: a system call that leaves errno alone. A child that borrows its parent's memory has
// its parent's errno, too, and both run at the same time.
#pragma once

#include <errno.h>
#include <unistd.h>

namespace dtrun::base {

/// @return what the kernel returns: -errno where it fails
__attribute__((no_sanitize("address,thread,undefined"))) inline long raw_syscall(
    long number, long a = 0, long b = 0, long c = 0, long d = 0) {
#if defined(__x86_64__)
  long result = number;
  register long fourth asm("r10") = d;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a), "S"(b), "d"(c), "r"(fourth)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long result asm("x0") = a;
  register long second asm("x1") = b;
  register long third asm("x2") = c;
  register long fourth asm("x3") = d;
  register long which asm("x8") = number;
  asm volatile("svc #0"
               : "+r"(result)
               : "r"(second), "r"(third), "r"(fourth), "r"(which)
               : "memory", "cc");
  return result;
#else
#error "raw_syscall: this processor's way of calling the kernel is missing"
#endif
}

}  // namespace dtrun::base
