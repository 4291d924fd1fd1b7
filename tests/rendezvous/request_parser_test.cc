#include "store/request_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "rendezvous/served_store.h"

namespace dtrun::rendezvous {
namespace {

using Status = RequestParser::Status;

// One request of every operation, with keys and values of all kinds of lengths.
std::vector<std::string> all_requests() {
  const std::string k = "02 0*7 '/k' ", v = "03 0*7 'a' 00 'b' ", empty = "0*8 ";
  std::vector<std::string> requests = {
      "00 ce f7 85 3c",
      "01 " + k + v,
      "01 " + empty + empty,
      "02 " + k + v + empty,
      "03 " + k,
      "04 " + k + "f9 ff*7",
      "05 02 0*7 " + k + empty,
      "05 0*8",
      "06 03 0*7 " + k + k + empty,
      "07",
      "08 " + k,
      "09 " + k + v,
      "0a 01 0*7 " + k,
      "0b 02 0*7 " + k + v + k + empty,
      "0b 0*8",
      "0c",
      "0d 01 02 03 04",
      "0e " + k + v,
      "0f " + k,
      "10 " + k,
      "11",
      "12 " + k + "04 0*7",
  };
  for (std::string& request : requests) request = bytes(request);
  return requests;
}

// A parser with what it borrows.
struct Desk {
  explicit Desk(const RequestLimits& given = {}) : limits(given) {}
  RequestLimits limits;
  StoreMemory memory;
  Request request;
  RequestParser parser{limits, memory, request};
};

std::string text_of(const Request& request) {
  std::string text = store_op_name(request.op);
  for (const std::string_view key : request.keys) text += " k:" + hex(std::string(key));
  for (const std::string_view value : request.values) text += " v:" + hex(std::string(value));
  return text + " " + std::to_string(request.number);
}

// Feeds the pieces and tells the requests that came out.
std::vector<std::string> parsed(const std::vector<std::string>& pieces) {
  Desk desk;
  RequestParser& parser = desk.parser;
  std::vector<std::string> requests;
  for (const std::string& piece : pieces) {
    std::string_view left = piece;
    Status status;
    while ((status = parser.parse(left)) == Status::kComplete)
      requests.push_back(text_of(parser.request()));
    EXPECT_EQ(status, Status::kNeedsMore) << parser.failure();
    EXPECT_TRUE(left.empty());
  }
  return requests;
}

Status parse(RequestParser& parser, const std::string& text) {
  std::string_view left = text;
  return parser.parse(left);
}

TEST(RequestParserTest, EachRequestIsReadWithItsFields) {
  const auto one = [](const std::string& text) { return parsed({bytes(text)}).at(0); };
  EXPECT_EQ(one("01 02 0*7 '/k' 01 0*7 'v'"), "SET k:2f 6b  v:76  0");
  EXPECT_EQ(one("02 01 0*7 'k' 01 0*7 'a' 0*8"), "COMPARE_SET k:6b  v:61  v: 0");
  EXPECT_EQ(one("04 01 0*7 'n' f9 ff*7"), "ADD k:6e  -7");
  EXPECT_EQ(one("0b 02 0*7 01 0*7 'a' 0*8 01 0*7 'b' 01 0*7 'v'"),
            "MULTI_SET k:61  k:62  v: v:76  0");
}

TEST(RequestParserTest, AnyCutOfTheBytesGivesTheSameRequests) {
  const std::vector<std::string> requests = all_requests();
  std::string all;
  for (const std::string& request : requests) all += request;
  const std::vector<std::string> expected = parsed({all});
  ASSERT_EQ(expected.size(), requests.size());

  std::vector<std::string> single_bytes;
  for (const char c : all) single_bytes.emplace_back(1, c);
  EXPECT_EQ(parsed(single_bytes), expected);
  for (std::size_t cut = 1; cut < all.size(); ++cut)
    EXPECT_EQ(parsed({all.substr(0, cut), all.substr(cut)}), expected) << "cut at " << cut;
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t size = 1 + random() % 40;
      pieces.push_back(all.substr(at, size));
      at += size;
    }
    EXPECT_EQ(parsed(pieces), expected) << "round " << round;
  }
}

TEST(RequestParserTest, LengthsBeyondTheLimitsEndItBeforeAnythingIsTaken) {
  const RequestLimits limits{8, 16, 2};
  for (const auto& [text, why] :
       {std::pair{"03 09 0*7", "GET with a key of 9 bytes, at most 8 are taken"},
        {"01 01 0*7 'k' 11 0*7", "SET with a value of 17 bytes, at most 16 are taken"},
        {"03 ff*8", "GET with a key of 18446744073709551615 bytes, at most 8 are taken"},
        {"06 03 0*7", "WAIT of 3 keys, at most 2 are taken"},
        {"0b ff*8", "MULTI_SET of 18446744073709551615 keys, at most 2 are taken"},
        {"13", "there is no operation 19"},
        {"7f", "there is no operation 127"}}) {
    Desk desk(limits);
    RequestParser& parser = desk.parser;
    EXPECT_EQ(parse(parser, bytes(text)), Status::kBad) << text;
    EXPECT_EQ(parser.failure(), why);
  }
  Desk desk(limits);
  RequestParser& parser = desk.parser;
  EXPECT_EQ(parse(parser, bytes("01 08 0*7 '12345678'") + bytes("10 0*7")), Status::kNeedsMore);
}

TEST(RequestParserTest, ManyAllowedPartsMayNotAddUpToTooMuch) {
  EXPECT_EQ(RequestLimits().request_bytes, 256u << 20);
  Desk desk({.request_bytes = 32 << 20});
  RequestParser& parser = desk.parser;
  EXPECT_EQ(parse(parser, bytes("0b ff ff 0*6")), Status::kNeedsMore);
  const std::string pair = bytes("0*8 00 00 80 0*5") + std::string(8 << 20, 'x');
  Status status = Status::kNeedsMore;
  int sent = 0;
  for (; status == Status::kNeedsMore; ++sent) status = parse(parser, pair);
  EXPECT_EQ(status, Status::kBad);
  EXPECT_EQ(sent, 4);
}

TEST(RequestParserTest, TheLegacyDialectsNumberTheirOperationsDifferently) {
  const auto op_in = [](StoreDialect dialect, const std::string& text) {
    Desk op_desk;
    RequestParser& parser = op_desk.parser;
    parser.set_dialect(dialect);
    EXPECT_EQ(parse(parser, bytes(text)), Status::kComplete) << text;
    return parser.request().op;
  };
  EXPECT_EQ(op_in(StoreDialect::kTorch19To20, "00 01 0*7 'k' 0*8"), StoreOp::kSet);
  EXPECT_EQ(op_in(StoreDialect::kTorch19To20, "07 01 0*7 'k'"), StoreOp::kWatchKey);
  EXPECT_EQ(op_in(StoreDialect::kTorch19To20, "08 01 0*7 'k'"), StoreOp::kDeleteKey);
  EXPECT_EQ(op_in(StoreDialect::kTorch21, "07 01 0*7 'k'"), StoreOp::kDeleteKey);
  EXPECT_EQ(op_in(StoreDialect::kTorch21, "0b"), StoreOp::kCancelWait);
  Desk desk;
  RequestParser& parser = desk.parser;
  parser.set_dialect(StoreDialect::kTorch19To20);
  EXPECT_EQ(parse(parser, bytes("09")), Status::kBad);
}

}  // namespace
}  // namespace dtrun::rendezvous
