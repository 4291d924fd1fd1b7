#include "init_method.h"

#include <fmt/core.h>

#include <limits>
#include <string_view>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"

namespace dtrun::runtime {
namespace {

using base::Error;
using base::ErrorCode;

constexpr const char* kWhatThereIs =
    "the init methods are env://, tcp://HOST:PORT and file:///PATH, each with "
    "?rank=R&world_size=N where wanted";

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("init method '{}' cannot be used", text),
              why, kWhatThereIs);
}

int number_of(const std::string& text, std::string_view name, std::string_view value) {
  const std::optional<long long> number = base::parse_integer(value);
  if (!number || *number < 0 || *number > std::numeric_limits<int>::max())
    refuse(text, fmt::format("'{}' is no {}", value, name));
  return static_cast<int>(*number);
}

void read_query(InitMethod& method, const std::string& text, std::string_view query) {
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(item.size() == query.size() ? item.size() : item.size() + 1);
    const std::string_view name = item.substr(0, item.find('='));
    const std::string_view value =
        name.size() == item.size() ? std::string_view() : item.substr(name.size() + 1);
    if (name == "rank") {
      method.rank = number_of(text, name, value);
    } else if (name == "world_size") {
      method.world_size = number_of(text, name, value);
    } else if (name != "use_libuv") {  // PyTorch's choice of its server, which ours is not
      refuse(text, fmt::format("it has no parameter '{}'", name));
    }
  }
}

void read_host_and_port(InitMethod& method, const std::string& text, std::string_view address) {
  base::HostPort where;
  try {
    where = base::HostPort::parse(address);
  } catch (const Error& error) {
    refuse(text, error.summary());
  }
  if (!where.port || *where.port == 0) refuse(text, "the port is missing");
  method.host = where.host;
  method.port = *where.port;
}

}  // namespace

InitMethod parse_init_method(const std::string& text) {
  const std::size_t scheme_end = text.find("://");
  if (scheme_end == std::string::npos) refuse(text, "it does not begin with a kind and ://");
  const std::string_view scheme = std::string_view(text).substr(0, scheme_end);
  const std::string_view rest = std::string_view(text).substr(scheme_end + 3);
  const std::string_view address = rest.substr(0, rest.find('?'));
  InitMethod method;
  if (address.size() < rest.size()) read_query(method, text, rest.substr(address.size() + 1));
  if (scheme == "env") {
    if (!address.empty()) refuse(text, "env:// takes no address");
  } else if (scheme == "tcp") {
    method.kind = InitMethod::Kind::tcp;
    read_host_and_port(method, text, address);
  } else if (scheme == "file") {
    method.kind = InitMethod::Kind::file;
    if (!address.starts_with('/') || address.ends_with('/'))
      refuse(text, "after file:// the whole path of a file is needed, which begins with /");
    method.path = address;
  } else {
    refuse(text, fmt::format("there is no kind '{}'", scheme));
  }
  return method;
}

}  // namespace dtrun::runtime
