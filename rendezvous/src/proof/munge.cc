#include "dtrun/rendezvous/munge.h"

#include <fmt/core.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "dtrun/base/dynamic_library.h"
#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::rendezvous {
namespace {

using base::Error;
using base::ErrorCode;

constexpr const char* kOption = "--rdzv_conf token=munge";
constexpr const char* kTryHere = "is munged running on this node? munge -n | unmunge tells";
constexpr const char* kTryBoth =
    "does munged have the same key on both nodes, and are their clocks within some minutes? munge "
    "-n | ssh NODE unmunge tells";

constexpr const char* kSealsNothing = "munge seals nothing on this node";

// What libmunge.so.2 promises to those who call it.
constexpr int kSuccess = 0, kSocketError = 6, kTimeout = 7;
constexpr int kCipherOption = 0, kSocketOption = 8, kUidOption = 9;
constexpr int kAes128 = 4;

struct Freer {
  void operator()(void* memory) const { ::free(memory); }
};

// Where Debian, Red Hat and munge's own default have it.
constexpr const char* kUsualSocket = "/run/munge/munge.socket.2";

bool takes_connections(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  path.copy(address.sun_path, path.size());
  const base::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* const place = reinterpret_cast<const sockaddr*>(&address);
  return fd && (::connect(fd.get(), place, sizeof address) == 0 || errno == EAGAIN);
}

}  // namespace

bool munge_runs(const MungeOptions& options) {
  return takes_connections(options.socket.empty() ? kUsualSocket : options.socket) &&
         base::DynamicLibrary({options.library}).opened();
}

struct Munge::Library {
  explicit Library(const std::string& name) : library({name}) {
    if (!library.opened())
      throw Error(ErrorCode::kUnavailable, fmt::format("{}: libmunge is not here", kOption),
                  library.reason(), "install it (Debian: libmunge2) on this node");
    if (!library.find("munge_encode", encode) || !library.find("munge_decode", decode) ||
        !library.find("munge_ctx_create", create) || !library.find("munge_ctx_destroy", destroy) ||
        !library.find("munge_ctx_set", set) || !library.find("munge_ctx_strerror", error_of) ||
        !library.find("munge_strerror", error_text))
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("{}: '{}' is not the libmunge that is known here", kOption, name),
                  "a function of it is missing", "see what the loader finds: ldconfig -p");
  }

  base::DynamicLibrary library;
  int (*encode)(char** credential, void* context, const void* content, int size) = nullptr;
  int (*decode)(const char* credential, void* context, void** content, int* size, uid_t* user,
                gid_t* group) = nullptr;
  void* (*create)() = nullptr;
  void (*destroy)(void* context) = nullptr;
  int (*set)(void* context, int option, ...) = nullptr;
  const char* (*error_of)(void* context) = nullptr;
  const char* (*error_text)(int error) = nullptr;
};

// A context for one call only: opening a credential leaves the options with which it was sealed in
// the context.
class Munge::Context {
 public:
  explicit Context(const Munge& munge) : library_(*munge.library_), context_(library_.create()) {
    if (context_ == nullptr) throw base::system_error("make a context of libmunge");
    if (!munge.socket_.empty()) set(kSocketOption, munge.socket_.c_str());
  }
  ~Context() { library_.destroy(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  template <typename Value>
  void set(int option, Value value) {
    if (const int error = library_.set(context_, option, value); error != kSuccess)
      throw failed(ErrorCode::kUnavailable, "libmunge refuses an option", error, kTryHere);
  }

  Error failed(ErrorCode code, const char* what, int error, const char* remedy) const {
    const char* const more = library_.error_of(context_);
    return Error(code, fmt::format("{}: {}", kOption, what),
                 more != nullptr && *more != '\0' ? more : library_.error_text(error), remedy);
  }

  void* get() const { return context_; }

 private:
  const Library& library_;
  void* const context_;
};

Munge::Munge(MungeOptions options)
    : socket_(std::move(options.socket)),
      rest_time_(options.rest),
      library_(std::make_unique<const Library>(options.library)) {
  seal();
}

Munge::~Munge() = default;

uid_t Munge::own_user() const {
  return ::geteuid();
}

Realm::Sealed Munge::seal() {
  {
    const std::lock_guard lock(mutex_);
    if (!rest_.expired())
      throw Error(ErrorCode::kUnavailable, fmt::format("{}: {}", kOption, kSealsNothing),
                  fmt::format("{}; it is asked again in {}", last_failure_,
                              base::format_duration(rest_.remaining())),
                  kTryHere);
  }
  std::string secret(kSecretBytes, '\0');
  if (::getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size()))
    throw base::system_error("get random bytes from the kernel");
  Context context(*this);
  context.set(kUidOption, own_user());
  // The cipher is named here, because munged may be configured to encrypt nothing.
  context.set(kCipherOption, kAes128);
  char* made = nullptr;
  const int error =
      library_->encode(&made, context.get(), secret.data(), static_cast<int>(secret.size()));
  const std::unique_ptr<char, Freer> credential(made);
  if (error != kSuccess) {
    Error failure = context.failed(ErrorCode::kUnavailable, kSealsNothing, error, kTryHere);
    const std::lock_guard lock(mutex_);
    last_failure_ = failure.why();
    rest_ = base::Deadline::after(rest_time_);
    throw failure;
  }
  return {std::move(secret), credential.get()};
}

Realm::Opened Munge::open(const std::string& credential) {
  const Context context(*this);
  void* content = nullptr;
  int size = 0;
  Opened opened{};
  gid_t group = 0;
  const int error =
      library_->decode(credential.c_str(), context.get(), &content, &size, &opened.user, &group);
  // The payload is there even if the credential is refused because of its time or as a replay.
  const std::unique_ptr<void, Freer> owner(content);
  if (error == kSocketError || error == kTimeout)
    throw context.failed(ErrorCode::kUnavailable, "munge opens nothing on this node", error,
                         kTryHere);
  if (error != kSuccess)
    throw context.failed(ErrorCode::kProtocol,
                         "the munge of this node does not open the credential", error, kTryBoth);
  if (size > 0)
    opened.secret.assign(static_cast<const char*>(content), static_cast<std::size_t>(size));
  return opened;
}

}  // namespace dtrun::rendezvous
