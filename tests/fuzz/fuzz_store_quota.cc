// Clients that send too much and read too little, at a store that may hold little. Input: commands;
// a command's first byte says which client (2 bits) and what: bytes to send, repeated up to a
// thousand times; answers to read, a few bytes or all; to go, while another comes. What must hold:
// the store never holds much more than it may; whoever fails says why; when all are gone, and their
// keys with them, nothing is counted any more.
#include <memory>

#include "fuzz/fuzz_input.h"
#include "store/store_session.h"

namespace dtrun::fuzz {
namespace {

using rendezvous::StoreDialect;
using rendezvous::StoreService;
using rendezvous::StoreSession;

constexpr std::size_t kClients = 4;
constexpr std::size_t kMostBytes = 16 << 10;
// What one request may exceed it by: its answers, its estimate's error.
constexpr std::size_t kSlack = 64 << 10;
constexpr std::string_view kPreamble("\x00\xce\xf7\x85\x3c", 5);

class Crowd {
 public:
  explicit Crowd(FuzzInput input) : input_(input) {
    for (std::size_t who = 0; who < kClients; ++who) come(who);
  }

  void run() {
    while (!input_.empty()) {
      const std::uint8_t command = input_.byte();
      const std::size_t who = command % kClients;
      const std::uint8_t what = command / kClients;
      if (what < 40) {
        send(who, what % 8 == 0 ? input_.word() % 1024 : 1);
      } else if (what < 60) {
        read(who, what < 50 ? input_.byte() : SIZE_MAX);
      } else {
        come(who);
      }
      check();
    }
    for (auto& session : sessions_) session.reset();
    service_.released.clear();
    service_.core.clear();
    FUZZ_CHECK(service_.core.memory().used() == 0, "memory is counted that nothing holds");
  }

 private:
  void come(std::size_t who) {
    sessions_[who].reset();
    sessions_[who] = std::make_unique<StoreSession>(service_);
    sessions_[who]->receive(kPreamble);
  }

  void send(std::size_t who, std::size_t times) {
    const std::string_view bytes = input_.take(input_.byte());
    for (std::size_t i = 0; i < times; ++i) {
      // Whom the server would not read from it does not give anything.
      if (sessions_[who]->stalled()) return;
      sessions_[who]->receive(bytes);
      sessions_[who]->limit_memory();
      if (sessions_[who]->state() == StoreSession::State::kFailed) return;
    }
  }

  void read(std::size_t who, std::size_t most) {
    StoreSession& session = *sessions_[who];
    while (most > 0 && !session.output().empty()) {
      iovec piece;
      FUZZ_CHECK(session.output().front(&piece, 1) == 1,
                 "an output that is not empty has no bytes");
      const std::size_t taken = std::min(most, piece.iov_len);
      session.output().pop(taken);
      most -= taken;
    }
    if (session.output().empty() && session.has_unserved()) session.resume();
    session.limit_memory();
  }

  void check() {
    for (std::size_t who = 0; who < kClients; ++who) {
      const StoreSession& session = *sessions_[who];
      if (session.state() == StoreSession::State::kFailed) {
        FUZZ_CHECK(!session.failure().empty(), "failed without a reason");
        come(who);
      }
    }
    service_.released.clear();
    FUZZ_CHECK(service_.core.memory().used() <= kMostBytes + kSlack,
               "the store holds more than it may");
  }

  FuzzInput input_;
  StoreService service_{
      {{.key_bytes = 64, .value_bytes = 8 << 10, .keys = 512}, StoreDialect::kTorch21, kMostBytes}};
  std::unique_ptr<StoreSession> sessions_[kClients];
};

}  // namespace
}  // namespace dtrun::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dtrun::fuzz::Crowd(dtrun::fuzz::FuzzInput(data, size)).run();
  return 0;
}
