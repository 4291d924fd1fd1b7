// Preloaded into PyTorch's server by store_bench: getnameinfo() answers with the numeric address
// and asks nobody. That server looks up the name of every peer inside its event loop, which would
// measure this machine's resolver instead.
#include <netdb.h>
#include <netinet/in.h>

#include <arpa/inet.h>
#include <cstdio>

extern "C" int getnameinfo(const sockaddr* address, socklen_t, char* host, socklen_t host_size,
                           char* service, socklen_t service_size, int) {
  const bool v6 = address->sa_family == AF_INET6;
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(address);
  const auto* in4 = reinterpret_cast<const sockaddr_in*>(address);
  const void* bytes = v6 ? static_cast<const void*>(&in6->sin6_addr) : &in4->sin_addr;
  if (host != nullptr && !::inet_ntop(address->sa_family, bytes, host, host_size))
    return EAI_OVERFLOW;
  if (service != nullptr)
    std::snprintf(service, service_size, "%u", ntohs(v6 ? in6->sin6_port : in4->sin_port));
  return 0;
}
