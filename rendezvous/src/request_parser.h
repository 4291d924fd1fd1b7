// RequestParser: turns a client's bytes into requests, however they are cut. Each byte is looked at
// once; nothing is allocated by what a length says, only by what has come.
// One per connection; not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store_protocol.h"

namespace dtrun::rendezvous {

struct Request {
  StoreOp op = StoreOp::kValidate;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  std::int64_t number = 0;  ///< delta, world, magic or nonce
};

struct RequestLimits {
  std::size_t key_bytes = kMaxKeyBytes;
  std::size_t value_bytes = kMaxValueBytes;
  std::size_t keys = 1 << 20;
};

class RequestParser {
 public:
  /// @param limits borrowed
  explicit RequestParser(const RequestLimits& limits) : limits_(limits) {}

  void set_dialect(StoreDialect dialect) { dialect_ = dialect; }

  enum class Status {
    kNeedsMore,  ///< all input is taken
    kComplete,   ///< request() is whole until the next call
    kBad,        ///< failure() says why; of no use any more
  };
  /// Takes from the front of `input` up to the end of one request.
  Status parse(std::string_view& input);
  Request& request() { return request_; }
  const std::string& failure() const { return failure_; }

 private:
  bool begin(unsigned char code);
  bool take_scalar(std::string_view& input, std::size_t width);
  bool take_text(std::string_view& input);
  bool length_fits();
  bool begin_text(std::vector<std::string>& texts);
  void begin_repeats();
  bool fail(std::string why);

  const RequestLimits& limits_;
  StoreDialect dialect_ = StoreDialect::kModern;
  Request request_;
  std::string failure_;

  const char* field_ = nullptr;     // the next field to read; null between requests
  const char* repeated_ = nullptr;  // where a repetition starts
  std::uint64_t repeats_left_ = 0;  // this one included
  std::string* text_ = nullptr;     // the text that is being filled
  std::uint64_t text_left_ = 0;
  std::uint64_t scalar_ = 0;
  std::size_t scalar_have_ = 0;
  std::size_t request_bytes_ = 0;
};

}  // namespace dtrun::rendezvous
