// EtcdOptions: where an etcd is and how to speak with it. A value. etcd 3.4 or newer, through the
// JSON gateway that it serves on its client port; its v2 interface is not needed. No proxy of the
// environment is used.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/socket.h"

namespace dtrun::rendezvous {

struct EtcdOptions {
  std::vector<base::HostPort> endpoints;  ///< members of one cluster; each has a port
  enum class Protocol { http, https } protocol = Protocol::http;
  std::string ca_cert;       ///< https: file of whom to trust; empty: whom the system trusts
  std::string ssl_cert;      ///< https: file of the own certificate; empty: none is shown
  std::string ssl_cert_key;  ///< file of its key; empty: in ssl_cert
  std::string user;          ///< empty: no authentication
  std::string password;

  /// "host:2379,[v6]:2379,host"; a port that is left out is 2379. @throws Error kInvalidArgument
  static std::vector<base::HostPort> parse_endpoints(std::string_view text);
};

}  // namespace dtrun::rendezvous
