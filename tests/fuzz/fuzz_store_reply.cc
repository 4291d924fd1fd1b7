// ReplyReader, which reads what a store, or whoever listens there, answers to our client. Input: a
// byte for the cuts, one for how many reads, their kinds, then the stream. What must hold: each
// read gives what a naive decoder of the whole stream says, or its error; no more is asked of the
// stream at once than has come before, so that a length that is a lie takes no memory.
#include "store/reply_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "dtrun/base/error.h"
#include "fuzz/fuzz_input.h"

namespace dtrun::fuzz {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using rendezvous::ReplyReader;

constexpr std::size_t kLeastAsked = 4096;
constexpr std::uint64_t kLongestText = 1 << 30;
enum Kind { kU32, kFlag, kI64, kCount, kText, kList, kKinds };

// What came of one read.
struct Outcome {
  std::int64_t number = 0;
  std::vector<std::string> texts;
  std::optional<ErrorCode> error;
  bool operator==(const Outcome&) const = default;
};

// Throws nothing, which would cost most of the time; after an error it is done.
class NaiveDecoder {
 public:
  explicit NaiveDecoder(std::string_view stream) : left_(stream) {}

  Outcome read(Kind kind) {
    Outcome outcome;
    if (kind == kU32) outcome.number = static_cast<std::int64_t>(number(4));
    if (kind == kFlag) outcome.number = flag();
    if (kind == kI64) outcome.number = static_cast<std::int64_t>(number(8));
    if (kind == kCount) outcome.number = count();
    if (kind == kText) outcome.texts.push_back(text());
    if (kind == kList)
      for (std::int64_t i = count(); i > 0 && !error_; --i) outcome.texts.push_back(text());
    if (error_) outcome = {.number = 0, .texts = {}, .error = error_};
    return outcome;
  }

 private:
  std::string_view take(std::uint64_t size) {
    if (!error_ && size > left_.size()) error_ = ErrorCode::kConnection;
    if (error_) return {};
    const std::string_view part = left_.substr(0, size);
    left_.remove_prefix(size);
    return part;
  }
  std::uint64_t number(std::size_t size) {
    std::uint64_t value = 0;
    for (const char c : take(size))
      value = value >> 8 | std::uint64_t{static_cast<unsigned char>(c)} << 56;
    return value >> (64 - 8 * size);
  }
  std::int64_t flag() {
    const std::uint64_t value = number(1);
    if (value > 1) error_ = ErrorCode::kProtocol;
    return static_cast<std::int64_t>(value);
  }
  std::int64_t count() {
    const auto value = static_cast<std::int64_t>(number(8));
    if (value < 0) error_ = ErrorCode::kProtocol;
    return value;
  }
  std::string text() {
    const std::uint64_t size = number(8);
    if (size > kLongestText) error_ = ErrorCode::kProtocol;
    return std::string(take(size));
  }

  std::string_view left_;
  std::optional<ErrorCode> error_;
};

Outcome read(ReplyReader& reader, Kind kind) {
  const Deadline never = Deadline::never();
  Outcome outcome;
  try {
    if (kind == kU32) outcome.number = reader.read_u32(never);
    if (kind == kFlag) outcome.number = reader.read_flag(never);
    if (kind == kI64) outcome.number = reader.read_i64(never);
    if (kind == kCount) outcome.number = reader.read_count(never);
    if (kind == kText) outcome.texts.push_back(reader.read_text(never));
    if (kind == kList) outcome.texts = reader.read_list(never);
  } catch (const Error& error) {
    outcome = {.number = 0, .texts = {}, .error = error.code()};
  }
  return outcome;
}

// The stream in pieces of at most `cut` bytes.
class Pieces {
 public:
  Pieces(std::string_view stream, std::size_t cut) : left_(stream), cut_(cut) {}

  std::size_t operator()(char* data, std::size_t size, Deadline) {
    FUZZ_CHECK(size > 0, "nothing is asked for");
    FUZZ_CHECK(size <= std::max(kLeastAsked, given_), "memory for what has not come");
    if (left_.empty()) throw Error(ErrorCode::kConnection, "the stream has ended");
    const std::size_t piece = std::min({size, cut_, left_.size()});
    std::memcpy(data, left_.data(), piece);
    left_.remove_prefix(piece);
    given_ += piece;
    return piece;
  }

 private:
  std::string_view left_;
  std::size_t cut_;
  std::size_t given_ = 0;
};

}  // namespace
}  // namespace dtrun::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrun::fuzz;
  FuzzInput input(data, size);
  const std::size_t cut = std::size_t{1} + input.byte();
  std::vector<Kind> kinds(1 + input.byte() % 8);
  for (Kind& kind : kinds) kind = static_cast<Kind>(input.byte() % kKinds);
  const std::string_view stream = input.take(size);
  ReplyReader reader(Pieces(stream, cut), "fuzz:1");
  NaiveDecoder decoder(stream);
  for (const Kind kind : kinds) {
    const Outcome expected = decoder.read(kind);
    FUZZ_CHECK(read(reader, kind) == expected, "another answer");
    // Its reader is out of step then, and thrown away.
    if (expected.error) break;
  }
  return 0;
}
