// Every operation of the protocol as bytes over real sockets: whole, cut at every byte, ahead of
// its replies, in each dialect.
#include <gtest/gtest.h>

#include "rendezvous/wire_words.h"

namespace dtrun::rendezvous {
namespace {

// The request may be sent any number of times, each time after its setup. What the setup answers is
// read and dropped; what comes after the request says what it has done.
struct WireVector {
  const char* request;
  const char* reply;
  const char* setup = "";
  std::size_t setup_reply_bytes = 0;
  const char* check = "";
  const char* check_reply = "";
};

const WireVector kVectors[] = {
    {"VALIDATE ce f7 85 3c", ""},
    {"SET 02 0*7 2f 6b 01 0*7 76", "", "", 0, "GET 02 0*7 2f 6b", "01 0*7 76"},
    {"SET 0*8 0*8", "", "", 0, "GET 0*8", "0*8"},
    {"COMPARE_SET 02 0*7 '/q' 01 0*7 'x' 01 0*7 'y'", "01 0*7 'x'", "DELETE_KEY 02 0*7 '/q'", 8,
     "GET 02 0*7 '/q'", "0*8"},
    {"COMPARE_SET 02 0*7 '/q' 0*8 01 0*7 'y'", "01 0*7 'y'", "DELETE_KEY 02 0*7 '/q'", 8,
     "GET 02 0*7 '/q'", "01 0*7 'y'"},
    {"COMPARE_SET 02 0*7 '/q' 03 0*7 'a' 00 'b' 01 0*7 'y'", "01 0*7 'y'",
     "SET 02 0*7 '/q' 03 0*7 'a' 00 'b'", 0, "GET 02 0*7 '/q'", "01 0*7 'y'"},
    {"COMPARE_SET 02 0*7 '/q' 03 0*7 'a' 00 'b' 01 0*7 'y'", "03 0*7 'a' 00 'c'",
     "SET 02 0*7 '/q' 03 0*7 'a' 00 'c'", 0, "GET 02 0*7 '/q'", "03 0*7 'a' 00 'c'"},
    {"GET 02 0*7 '/x'", "0*8"},
    {"GET 02 0*7 '/x'", "03 0*7 'a' 00 'b'", "SET 02 0*7 '/x' 03 0*7 'a' 00 'b'", 0,
     "DELETE_KEY 02 0*7 '/x'", "01 0*7"},
    {"ADD 02 0*7 2f 6e f9 ff*7", "fe ff*7", "SET 02 0*7 2f 6e 01 0*7 '5'", 0, "GET 02 0*7 2f 6e",
     "02 0*7 '-2'"},
    {"ADD 02 0*7 2f 6e 07 0*7", "07 0*7", "DELETE_KEY 02 0*7 2f 6e", 8, "GET 02 0*7 2f 6e",
     "01 0*7 '7'"},
    {"CHECK 02 0*7 01 0*7 'a' 01 0*7 'c'", "01", "SET 01 0*7 'a' 0*8", 0, "CHECK 01 0*7 01 0*7 'a'",
     "00"},
    {"CHECK 0*8", "00"},
    {"WAIT 02 0*7 01 0*7 'a' 01 0*7 'a'", "00", "SET 01 0*7 'a' 0*8"},
    {"WAIT 0*8", "00"},
    {"WAIT 02 0*7 01 0*7 'a' 04 0*7 'none'", "", "", 0, "CANCEL_WAIT", "01"},
    {"NUM_KEYS", "01 0*7", "SET 01 0*7 'a' 0*8"},
    {"DELETE_KEY 01 0*7 'd'", "01 0*7", "SET 01 0*7 'd' 0*8", 0, "DELETE_KEY 01 0*7 'd'", "0*8"},
    {"APPEND 01 0*7 'l' 02 0*7 'cd'", "", "SET 01 0*7 'l' 02 0*7 'ab'", 0, "GET 01 0*7 'l'",
     "04 0*7 'abcd'"},
    {"APPEND 01 0*7 'l' 02 0*7 'cd'", "", "DELETE_KEY 01 0*7 'l'", 8, "GET 01 0*7 'l'",
     "02 0*7 'cd'"},
    {"MULTI_GET 03 0*7 01 0*7 'a' 04 0*7 'none' 01 0*7 'b'", "01 0*7 '1' 0*8 02 0*7 '22'",
     "SET 01 0*7 'a' 01 0*7 '1' SET 01 0*7 'b' 02 0*7 '22'"},
    {"MULTI_GET 0*8", ""},
    {"MULTI_SET 02 0*7 01 0*7 'a' 01 0*7 '3' 01 0*7 'b' 0*8", "", "", 0,
     "GET 01 0*7 'a' GET 01 0*7 'b'", "01 0*7 '3' 0*8"},
    {"MULTI_SET 0*8", ""},
    {"CANCEL_WAIT", "01"},
    {"PING 01 02 03 04", "01 02 03 04"},
    {"QUEUE_PUSH 01 0*7 'q' 01 0*7 '1'", "", "", 0, "QUEUE_POP 01 0*7 'q'", "01 0*7 01 0*7 '1'"},
    {"QUEUE_POP 01 0*7 'q'", "0*8"},
    {"QUEUE_POP 01 0*7 'q'", "02 0*7 0*8",
     "QUEUE_PUSH 01 0*7 'q' 0*8 QUEUE_PUSH 01 0*7 'q' 01 0*7 '2'", 0, "QUEUE_POP 01 0*7 'q'",
     "01 0*7 01 0*7 '2'"},
    {"QUEUE_LEN 01 0*7 'q'", "0*8"},
    {"LIST_KEYS", "01 0*7 02 0*7 '/k'", "SET 02 0*7 '/k' 0*8"},
    {"BARRIER 01 0*7 'B' 01 0*7", "00", "DELETE_KEY 01 0*7 'B'", 8, "GET 01 0*7 'B'", "01 0*7 '1'"},
    {"BARRIER 01 0*7 'B' ff*7 7f", "", "", 0, "CANCEL_WAIT", "01"},
};

struct SpokenVector {
  std::string setup, request, reply, check, check_reply;
  std::size_t setup_reply_bytes;
};

// nullopt: the dialect lacks an operation of it.
std::optional<SpokenVector> spoken(const WireVector& vector, Dialect dialect) {
  const auto setup = wire(dialect, vector.setup), request = wire(dialect, vector.request),
             check = wire(dialect, vector.check);
  if (!setup || !request || !check) return std::nullopt;
  return SpokenVector{*setup,
                      *request,
                      bytes(vector.reply),
                      *check,
                      bytes(vector.check_reply),
                      vector.setup_reply_bytes};
}

TcpStoreServerOptions options_for(Dialect dialect) {
  TcpStoreServerOptions options;
  if (dialect == kWire21) options.legacy_numbering = LegacyNumbering::kTorch21;
  return options;
}

void drop_all_keys(const ServedStore& server) {
  WireClient client(server.port(), kModernWire);
  for (const char* key : {"01 0*7 'a'", "01 0*7 'b'", "01 0*7 'd'", "01 0*7 'l'", "01 0*7 'B'",
                          "02 0*7 '/k'", "02 0*7 '/q'", "02 0*7 '/x'", "02 0*7 '/n'", "0*8"}) {
    client.say(std::string("DELETE_KEY ") + key);
    client.receive(8);
  }
}

TEST(WireVectorsTest, TheTableNamesEveryOperation) {
  for (const auto& [name, codes] : operation_numbers()) {
    bool named = false;
    for (const WireVector& vector : kVectors)
      named = named || std::string(vector.request).substr(0, name.size() + 1) == name + " " ||
              vector.request == name;
    EXPECT_TRUE(named) << name;
  }
}

TEST(WireVectorsTest, EachIsAnsweredToTheByteInEveryDialect) {
  std::size_t told = 0;
  for (const Dialect dialect : kDialects) {
    const ServedStore server(options_for(dialect));
    for (const WireVector& vector : kVectors) {
      const auto words = spoken(vector, dialect);
      if (!words) continue;
      SCOPED_TRACE(vector.request);
      drop_all_keys(server);
      WireClient client(server.port(), dialect);
      client.send(words->setup);
      client.receive(words->setup_reply_bytes);
      client.send(words->request);
      EXPECT_EQ(hex(client.receive(words->reply.size())), hex(words->reply));
      client.send(words->check);
      EXPECT_EQ(hex(client.receive(words->check_reply.size())), hex(words->check_reply));
      client.in_step();
      ++told;
    }
  }
  EXPECT_GT(told, std::size(kVectors) + 20);
}

TEST(WireVectorsTest, EachMayBeCutAtAnyByte) {
  for (const Dialect dialect : kDialects) {
    const ServedStore server(options_for(dialect));
    WireClient other(server.port(), kModernWire);
    for (const WireVector& vector : kVectors) {
      const auto words = spoken(vector, dialect);
      if (!words) continue;
      SCOPED_TRACE(vector.request);
      drop_all_keys(server);
      WireClient client(server.port(), dialect);
      client.in_step();
      for (std::size_t cut = 1; cut < words->request.size(); ++cut) {
        client.send(words->setup);
        client.receive(words->setup_reply_bytes);
        client.send(words->request.substr(0, cut));
        other.let_others_be_served();
        client.send(words->request.substr(cut));
        EXPECT_EQ(hex(client.receive(words->reply.size())), hex(words->reply)) << "cut at " << cut;
        client.send(words->check);
        EXPECT_EQ(hex(client.receive(words->check_reply.size())), hex(words->check_reply));
      }
      client.in_step();
    }
  }
}

// All in one write, twice over; then the same byte after byte.
TEST(WireVectorsTest, AllMayBeSentAheadOfTheirReplies) {
  for (const Dialect dialect : kDialects) {
    const ServedStore server(options_for(dialect));
    std::string questions, answers;
    WireClient client(server.port(), dialect);
    for (const WireVector& vector : kVectors) {
      // What the setup answers, and what others may have left, is not known here.
      const auto words = spoken(vector, dialect);
      if (!words || words->setup_reply_bytes > 0 || *vector.request == 'N' ||
          *vector.request == 'L')
        continue;
      questions += words->setup + words->request + words->check;
      answers += words->reply + words->check_reply;
    }
    ASSERT_GT(answers.size(), 20u);
    client.send(questions + questions);
    EXPECT_EQ(hex(client.receive(2 * answers.size())), hex(answers + answers));
    client.in_step();
    for (const char byte : questions) client.send(std::string(1, byte));
    EXPECT_EQ(hex(client.receive(answers.size())), hex(answers));
    client.in_step();
  }
}

TEST(WireVectorsTest, TheHandshakeMayBeCutAfterAnyByte) {
  const ServedStore server;
  WireClient other(server.port(), kModernWire);
  const std::string handshake = bytes("00 ce f7 85 3c");
  for (std::size_t first = 1; first < handshake.size(); ++first)
    for (std::size_t second = first; second < handshake.size(); ++second) {
      RawClient client(server.port());
      client.send(handshake.substr(0, first));
      other.let_others_be_served();
      client.send(handshake.substr(first, second - first));
      other.let_others_be_served();
      client.send(handshake.substr(second) + bytes("0d 'pid1'"));
      EXPECT_EQ(client.receive(4), "pid1");
    }
}

}  // namespace
}  // namespace dtrun::rendezvous
