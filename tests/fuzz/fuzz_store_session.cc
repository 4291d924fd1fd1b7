// Four clients at one store: StoreSession and StoreCore against the naive model, byte for byte.
// Input: a byte of settings, then commands. A command's first byte says which client (2 bits) and
// what: a request made from a small alphabet, so that clients meet at the same keys; raw bytes; a
// client that goes and another that comes. What must hold after each command: every client has been
// sent exactly what the model sends, nothing else; states, dialects and the number of keys agree;
// who waits in the model waits in the store.
#include "store/store_session.h"

#include <algorithm>
#include <memory>

#include "fuzz/fuzz_input.h"
#include "fuzz/store_model.h"

namespace dtrun::fuzz {
namespace {

using rendezvous::StoreCore;
using rendezvous::StoreDialect;
using rendezvous::StoreService;
using rendezvous::StoreSession;
using State = StoreSession::State;

constexpr std::size_t kClients = 4;
constexpr std::string_view kPreamble("\x00\xce\xf7\x85\x3c", 5);

std::uint64_t number_at(const std::string& bytes, std::size_t at) {
  std::uint64_t number = 0;
  FUZZ_CHECK(bytes.size() >= at + 8, "an answer of LIST_KEYS is cut off");
  for (std::size_t i = 8; i-- > 0;)
    number = number << 8 | static_cast<unsigned char>(bytes[at + i]);
  return number;
}

// Puts the keys of the LIST_KEYS answer that starts at `at` into their order.
void sort_list(std::string& bytes, std::size_t at) {
  const std::uint64_t count = number_at(bytes, at);
  std::vector<std::string> keys;
  std::size_t end = at + 8;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t size = number_at(bytes, end);
    FUZZ_CHECK(bytes.size() - end - 8 >= size, "a key of LIST_KEYS is cut off");
    keys.push_back(bytes.substr(end + 8, size));
    end += 8 + size;
  }
  std::sort(keys.begin(), keys.end());
  for (const std::string& key : keys) {
    const std::uint64_t size = key.size();
    bytes.replace(at + 8, 8, reinterpret_cast<const char*>(&size), 8);
    bytes.replace(at + 16, size, key);
    at += 8 + size;
  }
}

class Conversation {
 public:
  explicit Conversation(FuzzInput input) : Conversation(input, input.byte()) {}

  void run() {
    while (!input_.empty()) {
      const std::uint8_t command = input_.byte();
      const std::size_t who = command % kClients;
      const std::uint8_t what = command / kClients;
      if (what < 56) {
        give(who, request(who, what));
      } else if (what < 60) {
        give(who, std::string(input_.take(input_.byte())));
      } else {
        come(who);
        if (what < 63) give(who, std::string(kPreamble));
      }
      compare();
    }
    for (std::size_t who = 0; who < kClients; ++who) {
      leave(who);
      compare();
    }
    FUZZ_CHECK(core_.list_keys().size() == core_.key_count(), "keys counted that are not there");
    core_.clear();
    FUZZ_CHECK(core_.memory().used() == 0, "memory is counted that nothing holds");
  }

 private:
  Conversation(FuzzInput& input, std::uint8_t settings)
      : input_(input),
        legacy_(settings & 1 ? ModelDialect::kTorch21 : ModelDialect::kTorch19To20),
        model_(kClients, limits_, legacy_),
        service_({{limits_.key_bytes, limits_.value_bytes, limits_.keys},
                  settings & 1 ? StoreDialect::kTorch21 : StoreDialect::kTorch19To20}) {
    for (std::size_t who = 0; who < kClients; ++who) {
      come(who);
      if (!(settings >> (4 + who) & 1)) give(who, std::string(kPreamble));
    }
    compare();
  }

  std::string key() {
    static const std::string kKeys[] = {"a", "b", "q", ""};
    return kKeys[input_.byte() % 4];
  }
  std::string value() {
    const std::uint8_t byte = input_.byte();
    static const std::string kValues[] = {"", "1", "-7", " +41x", "9223372036854775807", "x"};
    if (byte < 200) return kValues[byte % 6];
    return std::string(byte, static_cast<char>(byte));
  }

  std::string request(std::size_t who, std::uint8_t what) {
    ModelRequest request;
    request.op = what % kModelOps;
    request.keys = {key()};
    const bool lists = request.op == kCheck || request.op == kWait || request.op == kMultiGet ||
                       request.op == kMultiSet;
    if (lists) {
      request.keys.clear();
      for (std::size_t i = input_.byte() % 4; i > 0; --i) request.keys.push_back(key());
    }
    if (request.op == kSet || request.op == kAppend || request.op == kQueuePush)
      request.values = {value()};
    if (request.op == kCompareSet) request.values = {value(), value()};
    if (request.op == kMultiSet)
      for (std::size_t i = 0; i < request.keys.size(); ++i) request.values.push_back(value());
    if (request.op == kAdd || request.op == kBarrier)
      request.number = static_cast<std::int8_t>(input_.byte());
    if (request.op == kValidate) request.number = 0x3C85F7CE;
    if (request.op == kPing) request.number = input_.byte();
    return encode(model_.client(who).dialect, request);
  }

  void give(std::size_t who, const std::string& bytes) {
    if (!sessions_[who]) return;
    Cuts cuts(static_cast<std::uint32_t>(bytes.size() + input_.byte()));
    std::string_view left = bytes;
    while (!left.empty()) {
      const std::string_view piece = left.substr(0, cuts.next(left.size()));
      left.remove_prefix(piece.size());
      sessions_[who]->receive(piece);
      take_output(who);
      model_.receive(who, piece);
    }
  }

  // As the server does: sends, and lets go on whom its unread answers have stopped.
  void take_output(std::size_t who) {
    rendezvous::OutputQueue& output = sessions_[who]->output();
    do {
      if (sessions_[who]->has_unserved()) sessions_[who]->resume();
      while (!output.empty()) {
        iovec pieces[3];
        const std::size_t count = output.front(pieces, 3);
        FUZZ_CHECK(count > 0, "an output that is not empty has no bytes");
        std::size_t size = 0;
        for (std::size_t i = 0; i < count; ++i) {
          sent_[who].append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
          size += pieces[i].iov_len;
        }
        output.pop(size);
      }
    } while (sessions_[who]->has_unserved());
  }

  void come(std::size_t who) {
    leave(who);
    sessions_[who] = std::make_unique<StoreSession>(service_);
  }
  void leave(std::size_t who) {
    sessions_[who].reset();
    sent_[who].clear();
    model_.replace(who);
  }

  void compare() {
    for (std::size_t who = 0; who < kClients; ++who)
      if (sessions_[who]) compare(who);
    service_.released.clear();
    FUZZ_CHECK(core_.key_count() == model_.key_count(), "another number of keys");
    FUZZ_CHECK(core_.memory().used() >= model_.text_bytes(), "texts are held and not counted");
  }

  void compare(std::size_t who) {
    take_output(who);
    StoreSession& session = *sessions_[who];
    StoreModel::Client& model = model_.client(who);
    for (const std::size_t list : model.lists) sort_list(sent_[who], list);
    FUZZ_CHECK(sent_[who] == model.output, "another answer");
    sent_[who].clear();
    model.output.clear();
    model.lists.clear();
    FUZZ_CHECK(session.waiting() == (model.missing > 0), "another opinion on who waits");
    const bool legacy = model.dialect != ModelDialect::kModern;
    FUZZ_CHECK(session.is_legacy() == legacy, "another dialect");
    constexpr State kStates[] = {State::kOpening, State::kServing, State::kAgent, State::kFailed};
    FUZZ_CHECK(session.state() == kStates[model.state], "another state");
    // The server closes those; another one may come later.
    if (session.state() == State::kFailed || session.state() == State::kAgent) leave(who);
  }

  FuzzInput input_;
  const ModelLimits limits_{.key_bytes = 16, .value_bytes = 256, .keys = 8};
  const ModelDialect legacy_;
  StoreModel model_;
  StoreService service_;
  StoreCore& core_ = service_.core;
  std::unique_ptr<StoreSession> sessions_[kClients];
  std::string sent_[kClients];
};

}  // namespace
}  // namespace dtrun::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dtrun::fuzz::Conversation(dtrun::fuzz::FuzzInput(data, size)).run();
  return 0;
}
