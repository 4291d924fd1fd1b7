// Function table: the functions that a fresh image can run, by their names. Filled by
// DTRUN_MP_FUNCTION before main; process-wide, because a fresh image has nothing but a name.
// Written by static initializers (and dlopen), under a lock.
#pragma once

#include <string>

#include "dtrun/base/call_site.h"
#include "dtrun/runtime/mp.h"

namespace dtrun::mp {

struct FunctionEntry {
  std::string name;
  void (*function)() = nullptr;
  Registration::Run run = nullptr;
  Site site;
};

/// @param type mangled, for the text
/// @throws Error kUsage when it is not registered, or its name is also another function's
FunctionEntry find_function(void (*function)(), const std::string& type, const Site& site);
/// @throws Error kNotFound
FunctionEntry find_function(const std::string& name);

/// "app.cc:12"
std::string describe_site(const Site& site);

}  // namespace dtrun::mp
