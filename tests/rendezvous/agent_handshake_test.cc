#include "proof/agent_handshake.h"

#include <gtest/gtest.h>

#include "rendezvous/fake_realm.h"
#include "rendezvous/served_store.h"
#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using Role = AgentHandshake::Role;
using State = AgentHandshake::State;
using testing_support::contains;
using namespace std::string_literals;

const Token& right_token() {
  static const Token token("the right token of the job", "the test");
  return token;
}

// Machines of one realm.
struct MungeJob {
  Proof proof(uid_t user = 1000) const { return std::make_shared<FakeRealm>(ledger, user); }
  FakeRealm realm(uid_t user = 1000) const { return FakeRealm(ledger, user); }
  std::shared_ptr<FakeRealm::Ledger> ledger = std::make_shared<FakeRealm::Ledger>();
};

AgentHandshake side(Role role, Proof proof = {}, std::string purpose = "agents") {
  return AgentHandshake(role, std::move(purpose), std::move(proof), fresh_nonce());
}

// Its realm answers at once.
State feed(AgentHandshake& side, std::string_view text) {
  side.receive(text);
  if (const auto question = side.take_question()) side.hear(question());
  return side.state();
}

// All that one side said, as an onlooker would have recorded it.
struct Record {
  std::string by_head;
  std::string by_member;
};

// Lets both talk until neither has anything to say, `piece` bytes at a time.
Record converse(AgentHandshake& head, AgentHandshake& member, std::size_t piece = 4096) {
  Record record;
  const auto carry = [&](AgentHandshake& from, AgentHandshake& to, std::string& all) {
    const std::string said = from.take_output();
    all += said;
    for (std::size_t at = 0; at < said.size(); at += piece)
      feed(to, std::string_view(said).substr(at, piece));
    return !said.empty();
  };
  while (carry(member, head, record.by_member) || carry(head, member, record.by_head)) continue;
  return record;
}

TEST(AgentHandshakeTest, TwoWithoutATokenKnowEachOther) {
  AgentHandshake head = side(Role::kHead), member = side(Role::kMember);
  const Record record = converse(head, member);
  EXPECT_EQ(head.state(), State::kDone);
  EXPECT_EQ(member.state(), State::kDone);
  EXPECT_EQ(hex(record.by_member), hex(bytes("d7 07 00 06 'agents'")));
  EXPECT_EQ(hex(record.by_head), hex(bytes("d7 07 00")));
}

TEST(AgentHandshakeTest, TwoWithTheSameTokenKnowEachOtherInPiecesOfAnySize) {
  for (std::size_t piece = 1; piece < 140; ++piece) {
    AgentHandshake head = side(Role::kHead, right_token());
    AgentHandshake member = side(Role::kMember, right_token());
    converse(head, member, piece);
    EXPECT_EQ(head.state(), State::kDone) << piece;
    EXPECT_EQ(member.state(), State::kDone) << piece;
  }
}

TEST(AgentHandshakeTest, BytesBehindTheHandshakeAreLeft) {
  AgentHandshake head = side(Role::kHead), member = side(Role::kMember);
  std::string said = member.take_output() + "rest";
  std::string_view left = said;
  EXPECT_EQ(head.receive(left), State::kDone);
  EXPECT_EQ(left, "rest");
  said = head.take_output() + "answer";
  left = said;
  EXPECT_EQ(member.receive(left), State::kDone);
  EXPECT_EQ(left, "answer");
}

TEST(AgentHandshakeTest, WhoeverHasNoTokenOrAnotherOneIsRefusedByName) {
  const Token wrong("another token altogether", "the test");
  struct Case {
    Proof head, member;
    std::string told;
  };
  const Case cases[] = {
      {right_token(), {}, "this job demands a token (--rdzv_conf token_file=)"},
      {{}, right_token(), "this node has a token (--rdzv_conf token_file=), and the head has none"},
      {right_token(), wrong, "this node's token (--rdzv_conf token_file=) is not the head's"},
  };
  for (const Case& c : cases) {
    AgentHandshake head = side(Role::kHead, c.head), member = side(Role::kMember, c.member);
    converse(head, member);
    EXPECT_EQ(head.state(), State::kRefused);
    EXPECT_EQ(member.state(), State::kRefused);
    EXPECT_TRUE(contains(head.failure(), c.told)) << head.failure();
    EXPECT_TRUE(contains(member.failure(), c.told)) << member.failure();
  }
}

TEST(AgentHandshakeTest, AStoreAndItsClientsAreToldOfTheirOwnOptions) {
  const Token wrong("another token altogether", "the test");
  struct Case {
    Proof store, client;
    std::string told;
  };
  const std::string option = " (TcpStoreOptions::token, dtrun-store --token-file)";
  const Case cases[] = {
      {right_token(), {}, "this store demands a token" + option + ", and this client gave none"},
      {{}, right_token(), "this client has a token" + option + ", and the store has none"},
      {right_token(), wrong, "this client's token" + option + " is not the store's"},
  };
  for (const Case& c : cases) {
    AgentHandshake store = side(Role::kHead, c.store, kStorePurpose);
    AgentHandshake client = side(Role::kMember, c.client, kStorePurpose);
    converse(store, client);
    EXPECT_TRUE(contains(store.failure(), c.told)) << store.failure();
    EXPECT_TRUE(contains(client.failure(), c.told)) << client.failure();
  }
  AgentHandshake client = side(Role::kMember, right_token(), kStorePurpose);
  EXPECT_EQ(feed(client, "SSH-2.0-OpenSSH_9.2"), State::kFailed);
  EXPECT_EQ(client.failure(), "no store of dtrun's is at the other end");
}

TEST(AgentHandshakeTest, AHeadThatAsksForLessIsNotTalkedTo) {
  AgentHandshake member = side(Role::kMember, right_token());
  member.take_output();
  EXPECT_EQ(feed(member, bytes("d7 07 00")), State::kRefused);
  EXPECT_TRUE(contains(member.failure(), "and the head demands none")) << member.failure();
  EXPECT_EQ(member.take_output(), "");
  AgentHandshake bare = side(Role::kMember);
  EXPECT_EQ(feed(bare, bytes("d7 07 01")), State::kRefused);
  EXPECT_EQ(bare.failure(), "this job demands a token (--rdzv_conf token_file=)");
  AgentHandshake unknown = side(Role::kMember);
  EXPECT_EQ(feed(unknown, bytes("d7 07 07")), State::kRefused);
  EXPECT_TRUE(contains(unknown.failure(), "kind 7")) << unknown.failure();
}

TEST(AgentHandshakeTest, AHeadWithoutTheTokenIsNotBelieved) {
  AgentHandshake member = side(Role::kMember, right_token());
  member.take_output();
  EXPECT_EQ(feed(member, bytes("d7 07 01 00*32 d7 00*32")), State::kRefused);
  EXPECT_EQ(member.failure(), "who listens there does not have this job's token");
}

TEST(AgentHandshakeTest, ARecordedConversationIsWorthNothing) {
  AgentHandshake head = side(Role::kHead, right_token());
  AgentHandshake member = side(Role::kMember, right_token());
  const Record record = converse(head, member);
  AgentHandshake next_head = side(Role::kHead, right_token());
  EXPECT_EQ(feed(next_head, record.by_member), State::kRefused);
  AgentHandshake next_member = side(Role::kMember, right_token());
  EXPECT_EQ(feed(next_member, record.by_head), State::kRefused);
}

TEST(AgentHandshakeTest, AReflectedConversationIsWorthNothing) {
  // To a member: its own words come back. To a head: its own nonce, and its own code.
  AgentHandshake member = side(Role::kMember, right_token());
  EXPECT_NE(feed(member, member.take_output()), State::kDone);
  AgentHandshake head = side(Role::kHead, right_token());
  feed(head, bytes("d7 07 01 06 'agents' 00*32"));
  const std::string nonce = head.take_output().substr(3);
  AgentHandshake victim = side(Role::kMember, right_token());
  victim.take_output();
  // Another head's code over the same nonces would be the head's; a member's code is wanted.
  feed(victim, bytes("d7 07 01") + nonce);
  EXPECT_EQ(feed(head, victim.take_output()), State::kRefused);
}

// One bit of all that both say is changed on its way; each of them in turn.
template <typename MakeProofs>
void expect_flips_are_noticed(std::size_t member_bytes, std::size_t head_bytes,
                              MakeProofs make_proofs) {
  for (std::size_t at = 0; at < member_bytes + head_bytes; ++at)
    for (int bit = 0; bit < 8; ++bit) {
      const auto [heads, members] = make_proofs();
      AgentHandshake head = side(Role::kHead, heads), member = side(Role::kMember, members);
      std::size_t by_member = 0, by_head = 0;
      const auto carry = [&](AgentHandshake& from, AgentHandshake& to, std::size_t& count,
                             std::size_t target) {
        std::string said = from.take_output();
        if (target >= count && target - count < said.size())
          said[target - count] = static_cast<char>(said[target - count] ^ 1 << bit);
        count += said.size();
        feed(to, said);
        return !said.empty();
      };
      const std::size_t in_head = at < member_bytes ? SIZE_MAX : at - member_bytes;
      while (carry(member, head, by_member, at < member_bytes ? at : SIZE_MAX) ||
             carry(head, member, by_head, in_head))
        continue;
      EXPECT_FALSE(head.state() == State::kDone && member.state() == State::kDone)
          << "bit " << bit << " of byte " << at;
    }
}

TEST(AgentHandshakeTest, AFlippedBitAnywhereIsNoticed) {
  expect_flips_are_noticed(4 + 6 + 32 + 32, 3 + 32 + 1 + 32,
                           [] { return std::pair<Proof, Proof>(right_token(), right_token()); });
  const std::string credential = MungeJob().realm().seal().credential;
  expect_flips_are_noticed(4 + 6 + 32 + 32, 3 + 32 + 2 + credential.size() + 1 + 32, [] {
    const MungeJob job;
    return std::pair<Proof, Proof>(job.proof(), job.proof());
  });
}

TEST(AgentHandshakeTest, AnotherVersionIsRefusedInWordsThatItReads) {
  // As version 2 opens: preamble, version, and its Hello right behind.
  AgentHandshake head = side(Role::kHead);
  EXPECT_EQ(feed(head, bytes("d7 02 2a 00*3 00")), State::kRefused);
  const std::string text =
      "this node's dtrun speaks version 2 of the agents' protocol, the head's speaks 7";
  EXPECT_EQ(head.failure(), text);
  EXPECT_EQ(hex(head.take_output()), hex(bytes("54 00*3 02 4f 00*3") + text));
  // And as version 2 refuses.
  AgentHandshake member = side(Role::kMember);
  EXPECT_EQ(feed(member, bytes("0a 00*3 02 05 00*3 'old' 1b 0a")), State::kRefused);
  EXPECT_EQ(member.failure(), "old??");
  AgentHandshake wordless = side(Role::kMember);
  EXPECT_EQ(feed(wordless, bytes("05 00*3 02 00*4")), State::kRefused);
  EXPECT_EQ(wordless.failure(), "it gives no reason");
  AgentHandshake newer = side(Role::kMember);
  EXPECT_EQ(feed(newer, bytes("d7 08")), State::kRefused);
  EXPECT_TRUE(contains(newer.failure(), "the head's dtrun speaks version 8")) << newer.failure();
}

TEST(AgentHandshakeTest, AnotherPurposeIsRefusedByName) {
  AgentHandshake head = side(Role::kHead, right_token(), "store");
  AgentHandshake member = side(Role::kMember, right_token(), "agents");
  converse(head, member);
  EXPECT_EQ(member.state(), State::kRefused);
  EXPECT_EQ(member.failure(), "this port is for 'store', not for 'agents'");
}

TEST(AgentHandshakeTest, WhatIsNoAgentIsToldByItsFirstBytes) {
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\n"), bytes("16 03 01 02 00 01 00 01 fc 03 03"),
        std::string("SSH-2.0-OpenSSH_9.2\r\n"), bytes("00 ce f7 85 3c"), bytes("ff*4096")}) {
    AgentHandshake head = side(Role::kHead);
    EXPECT_EQ(feed(head, text), State::kFailed) << text;
    EXPECT_EQ(head.take_output(), "");
  }
  for (const std::string& text :
       {std::string("HTTP/1.1 400 Bad Request\r\n"), bytes("15 03 01 00 02 02 46 00 00"),
        bytes("05 00*3 02 ff*4"), bytes("ff*4 02 fa ff*3"), bytes("04 00*3 02 00*4")}) {
    AgentHandshake member = side(Role::kMember);
    EXPECT_EQ(feed(member, text), State::kFailed) << hex(text);
    EXPECT_EQ(member.failure(), "no dtrun agent is at the other end");
  }
  AgentHandshake head = side(Role::kHead);
  EXPECT_EQ(feed(head, bytes("d7 07 00 ff")), State::kFailed);
}

TEST(AgentHandshakeTest, TwoOfOneUserInOneRealmKnowEachOtherInPiecesOfAnySize) {
  const MungeJob job;
  const Proof heads = job.proof(), members = job.proof();
  for (std::size_t piece = 1; piece < 260; ++piece) {
    AgentHandshake head = side(Role::kHead, heads), member = side(Role::kMember, members);
    converse(head, member, piece);
    EXPECT_EQ(head.state(), State::kDone) << piece << head.failure();
    EXPECT_EQ(member.state(), State::kDone) << piece << member.failure();
  }
}

TEST(AgentHandshakeTest, AnotherRealmOrUserIsNotBelieved) {
  const MungeJob job, other_realm;
  const auto lenient = std::make_shared<FakeRealm>(job.ledger, 1001);
  lenient->opens_all = true;
  const auto broken = std::make_shared<FakeRealm>(job.ledger, 1000);
  broken->broken = true;
  struct Case {
    Proof member;
    std::string told;
  };
  const Case cases[] = {
      {other_realm.proof(), "Invalid credential; use one realm"},
      {job.proof(1001), "Unauthorized credential; use one realm"},
      {lenient, "who listens there is user 1000, and this agent is user 1001: start all"},
      {broken, "has not proved that it is of this job's user: the realm does not answer: it is "},
  };
  for (const Case& c : cases) {
    AgentHandshake head = side(Role::kHead, job.proof()), member = side(Role::kMember, c.member);
    const Record record = converse(head, member);
    EXPECT_EQ(head.state(), State::kRunning);  // waits for what does not come
    EXPECT_EQ(member.state(), State::kRefused);
    EXPECT_TRUE(contains(member.failure(), c.told)) << member.failure();
    EXPECT_EQ(record.by_member.size(), 4 + 6 + 32u);  // no code is given away
  }
  // Who did not open the credential.
  AgentHandshake head = side(Role::kHead, job.proof());
  EXPECT_EQ(feed(head, bytes("d7 07 02 06 'agents' 00*32 00*32")), State::kRefused);
  EXPECT_TRUE(contains(head.failure(), "did not open the head's credential")) << head.failure();
}

TEST(AgentHandshakeTest, AHeadThatCannotSealSaysSo) {
  const auto realm = std::make_shared<FakeRealm>(MungeJob().ledger, 1000);
  const auto refusal = [&realm] {
    AgentHandshake head = side(Role::kHead, realm), member = side(Role::kMember, realm);
    converse(head, member);
    EXPECT_EQ(head.state(), State::kRefused);
    EXPECT_EQ(member.state(), State::kRefused);
    return member.failure();
  };
  realm->padding = 2000;
  EXPECT_TRUE(contains(refusal(), "the head's credential has 2008 bytes, and 1024 are read"));
  realm->broken = true;
  EXPECT_TRUE(contains(refusal(),
                       "the head cannot prove who it is: the realm does not answer: it "
                       "is broken; mend it"));
}

TEST(AgentHandshakeTest, AReplayedCredentialIsOfNoUse) {
  const MungeJob job;
  const Proof heads = job.proof(), members = job.proof();
  AgentHandshake head = side(Role::kHead, heads), member = side(Role::kMember, members);
  const Record record = converse(head, member);
  ASSERT_EQ(member.state(), State::kDone);
  // To the same machine; to another one, which opens it; to another head.
  AgentHandshake same = side(Role::kMember, members), other = side(Role::kMember, job.proof());
  EXPECT_EQ(feed(same, record.by_head), State::kRefused);
  EXPECT_TRUE(contains(same.failure(), "Replayed credential")) << same.failure();
  EXPECT_EQ(feed(other, record.by_head), State::kRefused);
  EXPECT_EQ(other.failure(), "who listens there sends a credential that is not its own");
  AgentHandshake next_head = side(Role::kHead, heads);
  EXPECT_EQ(feed(next_head, record.by_member), State::kRefused);
}

TEST(AgentHandshakeTest, ACredentialThatIsNoneIsRefused) {
  const MungeJob job;
  const auto answered = [&](const std::string& rest) {
    AgentHandshake member = side(Role::kMember, job.proof());
    member.take_output();
    feed(member, bytes("d7 07 02 00*32") + rest);
    EXPECT_EQ(member.take_output(), "");
    return std::pair(member.state(), member.failure());
  };
  EXPECT_EQ(answered(bytes("01 04")), std::pair(State::kFailed, "its credential is too long"s));
  EXPECT_EQ(answered(bytes("ff ff ff*4096")).first, State::kFailed);
  EXPECT_EQ(answered(bytes("00 04 41*1023")).first, State::kRunning);
  for (const std::string& garbage : {bytes("00 04 41*1024"), bytes("00 00"), bytes("01 00 00")})
    EXPECT_TRUE(contains(answered(garbage).second, "Invalid credential")) << hex(garbage);
  FakeRealm brief = job.realm();
  brief.secret_size = 31;
  const std::string credential = brief.seal().credential;
  const std::string size{static_cast<char>(credential.size()), '\0'};
  EXPECT_EQ(answered(size + credential),
            std::pair(State::kFailed, "its credential holds no secret"s));
}

TEST(AgentHandshakeTest, MungeAndAnotherProofRefuseEachOtherByName) {
  const Proof munge = MungeJob().proof();
  struct Case {
    Proof head, member;
    std::string told;
  };
  const Case cases[] = {
      {munge, {}, "this job demands a token of munge (--rdzv_conf token=munge), and this node"},
      {{}, munge, "this node has a token of munge (--rdzv_conf token=munge), and the head has"},
      {right_token(), munge,
       "this node has a token of munge (--rdzv_conf token=munge), and the head a token "
       "(--rdzv_conf "
       "token_file=): give the same to all"},
      {munge, right_token(), "and the head a token of munge (--rdzv_conf token=munge): give the"},
  };
  for (const Case& c : cases) {
    AgentHandshake head = side(Role::kHead, c.head), member = side(Role::kMember, c.member);
    converse(head, member);
    EXPECT_EQ(head.state(), State::kRefused);
    EXPECT_EQ(member.state(), State::kRefused);
    for (const std::string& failure : {head.failure(), member.failure()})
      EXPECT_TRUE(contains(failure, c.told)) << failure;
  }
  // A head that asks for less than it was offered is no head.
  for (const char* less : {"d7 07 00", "d7 07 01 00*32 d7 00*32"}) {
    AgentHandshake member = side(Role::kMember, munge);
    member.take_output();
    EXPECT_EQ(feed(member, bytes(less)), State::kRefused);
    EXPECT_TRUE(contains(member.failure(), "this node has a token of munge")) << member.failure();
    EXPECT_EQ(member.take_output(), "");
  }
}

TEST(AgentHandshakeTest, NoncesDiffer) {
  EXPECT_NE(fresh_nonce(), fresh_nonce());
}

}  // namespace
}  // namespace dtrun::rendezvous
