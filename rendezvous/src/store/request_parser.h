// RequestParser: turns a client's bytes into requests, however they are cut. A request that has
// come whole is read where it lies; of one that has not, what has come is kept, and looked at once.
// Nothing is allocated by what a length says, only by what has come; a length that is beyond its
// limit is refused as soon as the bytes of it that have come say so.
// One per connection; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/store_bytes.h"
#include "store/store_protocol.h"

namespace dtrun::rendezvous {

/// Its texts lie in the parser's input, or in the parser: valid until the next call, and no longer
/// than the input.
struct Request {
  StoreOp op = StoreOp::kValidate;
  std::vector<std::string_view> keys;
  std::vector<std::string_view> values;
  std::int64_t number = 0;  ///< delta, world, magic or nonce
  std::size_t bytes = 0;    ///< of all of it, as sent
};

struct RequestLimits {
  std::size_t key_bytes = kMaxKeyBytes;
  std::size_t value_bytes = kMaxValueBytes;
  std::size_t keys = 1 << 20;
  std::size_t request_bytes = kMaxRequestBytes;
};

class RequestParser {
 public:
  /// All borrowed. Half requests are charged to `memory`; `request` is where whole ones are shown,
  /// and may be shared by all parsers of a thread.
  RequestParser(const RequestLimits& limits, StoreMemory& memory, Request& request)
      : limits_(limits), memory_(memory), request_(request) {}

  void set_dialect(StoreDialect dialect) { dialect_ = dialect; }

  enum class Status {
    kNeedsMore,  ///< all input is taken
    kComplete,   ///< request() is whole until the next call
    kBad,        ///< failure() says why; of no use any more
  };
  /// Takes from the front of `input` up to the end of one request.
  /// @throws StoreFull there is no room for a half one
  Status parse(std::string_view& input);
  const Request& request() const { return request_; }
  const std::string& failure() const { return failure_; }
  /// Where a request() that did not come whole at once lies; null for one that did.
  StoreBytes* kept() const { return half_ ? &half_->bytes : nullptr; }
  /// Frees it; request() is no longer valid.
  void forget_request() {
    if (half_ && half_->is_whole) half_.reset();
  }

 private:
  // The part of a request that has come, if the read did not bring all of it.
  struct Half {
    explicit Half(StoreMemory& memory) : bytes(memory) {}
    StoreBytes bytes;
    bool is_whole = false;
  };

  void keep(std::string_view& more);
  bool begin(unsigned char code);
  Status scan(std::string_view bytes);
  bool scan_text(std::uint64_t size);
  bool scan_count(std::uint64_t count);
  bool next_field();
  void show(std::string_view bytes);
  bool fail(std::string why);

  const RequestLimits& limits_;
  StoreMemory& memory_;
  Request& request_;
  std::string failure_;
  std::unique_ptr<Half> half_;
  StoreDialect dialect_ = StoreDialect::kModern;

  // How far the request has been understood.
  StoreOp op_ = StoreOp::kValidate;
  const char* field_ = nullptr;     // the next field to read; null between requests
  const char* repeated_ = nullptr;  // where a repetition starts
  std::uint64_t repeats_left_ = 0;  // this one included
  std::size_t at_ = 0;              // where that field begins
  std::size_t needed_ = 0;          // so long is the request at least
};

}  // namespace dtrun::rendezvous
