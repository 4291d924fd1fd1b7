#include "etcd/tls_session.h"

#include "dtrun/base/dynamic_library.h"
#include "dtrun/base/error.h"

namespace dtrun::rendezvous {

std::unique_ptr<TlsSession> TlsSession::open(const EtcdOptions& options, const std::string& host) {
  // Where the program was linked to look (DT_RUNPATH), or where the machine's libraries are.
  static const base::DynamicLibrary module({"libdtrun-tls.so"});
  OpenTlsSession make = nullptr;
  if (module.opened() && module.find(kOpenTlsSession, make))
    return std::unique_ptr<TlsSession>(make(options, host));
  throw base::Error(base::ErrorCode::kUnavailable,
                    "https needs OpenSSL through libdtrun-tls.so, which cannot be opened",
                    module.opened() ? "it is of another version" : module.reason(),
                    "install libssl3 and the dtrun that was built with it, or use etcd over http");
}

}  // namespace dtrun::rendezvous
