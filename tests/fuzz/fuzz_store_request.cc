// RequestParser in every dialect, however its input is cut. Input: a byte for the dialect and the
// limits, two for the cuts, then the stream. What must hold: cut input gives the requests of whole
// input, and both those of the naive decoder; a request is whole at the same byte.
#include "store/request_parser.h"

#include <optional>

#include "fuzz/fuzz_input.h"
#include "fuzz/store_model.h"

namespace dtrun::fuzz {
namespace {

using rendezvous::RequestLimits;
using rendezvous::RequestParser;
using rendezvous::StoreDialect;

struct Setting {
  StoreDialect dialect = StoreDialect::kModern;
  ModelDialect model_dialect = ModelDialect::kModern;
  RequestLimits limits;
  ModelLimits model_limits;
};

Setting setting_of(std::uint8_t byte) {
  Setting setting;
  if (byte % 4 == 1) {
    setting.dialect = StoreDialect::kTorch19To20;
    setting.model_dialect = ModelDialect::kTorch19To20;
  } else if (byte % 4 == 2) {
    setting.dialect = StoreDialect::kTorch21;
    setting.model_dialect = ModelDialect::kTorch21;
  }
  // So small that short inputs reach them.
  if (byte & 0x10) setting.limits.key_bytes = 5;
  if (byte & 0x20) setting.limits.value_bytes = 7;
  if (byte & 0x40) setting.limits.keys = 3;
  setting.model_limits = {setting.limits.key_bytes, setting.limits.value_bytes,
                          setting.limits.keys};
  return setting;
}

void expect_equal(const rendezvous::Request& request, const ModelRequest& expected) {
  FUZZ_CHECK(static_cast<int>(request.op) == expected.op, "another operation");
  const auto texts = [](const std::vector<std::string_view>& views) {
    return std::vector<std::string>(views.begin(), views.end());
  };
  FUZZ_CHECK(texts(request.keys) == expected.keys, "other keys");
  FUZZ_CHECK(texts(request.values) == expected.values, "other values");
  const bool has_number = expected.op == kAdd || expected.op == kBarrier || expected.op == kPing ||
                          expected.op == kValidate;
  FUZZ_CHECK(!has_number || request.number == expected.number, "another number");
}

// Feeds the stream, in one piece where there are no cuts, and compares each step with the
// decoder's.
void parse(const Setting& setting, std::string_view stream, std::optional<Cuts> cuts) {
  rendezvous::StoreMemory memory;
  rendezvous::Request request;
  RequestParser parser(setting.limits, memory, request);
  parser.set_dialect(setting.dialect);
  Decoded expected = decode(setting.model_dialect, stream, setting.model_limits);
  std::size_t taken = 0;  // of the present request
  while (!stream.empty()) {
    std::string_view piece = stream.substr(0, cuts ? cuts->next(stream.size()) : stream.size());
    stream.remove_prefix(piece.size());
    while (!piece.empty()) {
      const std::size_t before = piece.size();
      const RequestParser::Status status = parser.parse(piece);
      taken += before - piece.size();
      if (status == RequestParser::Status::kBad) {
        FUZZ_CHECK(expected.status == Decoded::kBad, "a good request is refused");
        FUZZ_CHECK(!parser.failure().empty(), "refused without a reason");
        return;
      }
      if (status == RequestParser::Status::kNeedsMore) {
        FUZZ_CHECK(piece.empty(), "more is asked for before all is taken");
        FUZZ_CHECK(expected.status != Decoded::kComplete || taken < expected.size,
                   "a whole request is not seen");
        break;
      }
      FUZZ_CHECK(expected.status == Decoded::kComplete, "a request is seen where none is whole");
      FUZZ_CHECK(taken == expected.size, "a request ends at another byte");
      expect_equal(parser.request(), expected.request);
      taken = 0;
      const std::string_view left(piece.data(), piece.size() + stream.size());
      expected = decode(setting.model_dialect, left, setting.model_limits);
    }
  }
  FUZZ_CHECK(expected.status != Decoded::kBad, "a bad request is not refused");
}

}  // namespace
}  // namespace dtrun::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrun::fuzz;
  FuzzInput input(data, size);
  const Setting setting = setting_of(input.byte());
  const Cuts cuts(input.word());
  const std::string_view stream = input.rest();
  parse(setting, stream, std::nullopt);
  parse(setting, stream, cuts);
  return 0;
}
