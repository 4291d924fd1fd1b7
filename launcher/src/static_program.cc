// What dtrun-static has instead of the parts of glibc that do not work in a static program. They
// would load libraries of the machine, which fit only where its glibc is the one that we were
// linked with; elsewhere they crash.
#include <dlfcn.h>
#include <nss.h>

namespace {

// Names come from /etc/hosts and DNS, whose code is in libc.a; other services of nsswitch.conf are
// libraries.
[[gnu::constructor]] void resolve_by_files_and_dns() {
  ::__nss_configure_lookup("hosts", "files dns");
}

}  // namespace

// Before those of libc.a. Whoever opens a library has an error for its absence, and shows why.
extern "C" {
void* dlopen(const char* /*file*/, int /*mode*/) noexcept {
  return nullptr;
}
void* dlsym(void* /*handle*/, const char* /*name*/) noexcept {
  return nullptr;
}
int dlclose(void* /*handle*/) noexcept {
  return -1;
}
int dlinfo(void* /*handle*/, int /*request*/, void* /*result*/) noexcept {
  return -1;
}
char* dlerror() noexcept {
  static char reason[] = "dtrun-static is a static program, which opens no libraries";
  return reason;
}
}
