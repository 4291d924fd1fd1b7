// The ring between two ranks of a machine: bytes through it, payloads that are lent, and messages
// that are taken in one look.
#include "cpu/ring.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "cpu/heap.h"
#include "cpu/letter.h"
#include "cpu/life_sign.h"
#include "cpu/message.h"
#include "cpu/peer_memory.h"
#include "support/thrown_error.h"

namespace dtrun::collectives::cpu {
namespace {

using testing_support::error_of;

/// A ring in memory of its own, and its sender.
struct OwnRing {
  static constexpr std::size_t kCapacity = 64 << 10;

  const Commons commons = Commons::create(1);
  Heap heap{commons, 0};
  RingHeader* const ring = [this] {
    auto* made = new (heap.at(heap.allocate(ring_bytes(kCapacity)))) RingHeader();
    made->capacity = kCapacity;
    return made;
  }();
  Doorbell doorbell;
  RingSendChannel sender{*ring, doorbell};
};

TEST(RingTest, BytesComeOutInOrderHoweverTheyAreCut) {
  OwnRing own;
  RingSendChannel& sender = own.sender;
  RingReceiveChannel receiver(*own.ring, own.doorbell);
  std::vector<std::byte> sent(5'000'011);
  for (std::size_t i = 0; i < sent.size(); ++i)
    sent[i] = static_cast<std::byte>((i * 2654435761u) >> 13);
  std::thread producer([&] {
    std::size_t done = 0;
    while (done < sent.size()) {
      // A header and a payload, of sizes that hit the ring's end in every way.
      const Bytes rest = Bytes(sent).subspan(done);
      const std::size_t first = std::min<std::size_t>(rest.size(), 1 + done % 97);
      const std::size_t second = std::min<std::size_t>(rest.size() - first, done % 100'003);
      done += sender.write(rest.first(first), rest.subspan(first, second));
    }
  });
  std::vector<std::byte> received(sent.size());
  std::size_t done = 0;
  while (done < received.size())
    done += receiver.read(std::span(received).subspan(
        done, std::min<std::size_t>(received.size() - done, 1 + done % 70'001)));
  producer.join();
  EXPECT_TRUE(received == sent);
  std::byte more;
  EXPECT_EQ(receiver.read({&more, 1}), 0U);
}

// The reader looks at one mark after the other, and the sender has used them again meanwhile.
TEST(RingTest, NothingThatWasWrittenBeforeTheReaderLooksIsMissed) {
  for (std::size_t messages = 1; messages < 4 * RingHeader::kMarks; ++messages) {
    OwnRing own;
    RingReceiveChannel receiver(*own.ring, own.doorbell);
    EXPECT_TRUE(receiver.empty());
    for (std::size_t i = 0; i < messages; ++i) {
      const auto number = static_cast<std::byte>(i);
      ASSERT_EQ(own.sender.write({&number, 1}, {}), 1U);
    }
    EXPECT_FALSE(receiver.empty());
    EXPECT_TRUE(receiver.has(messages));
    EXPECT_FALSE(receiver.has(messages + 1));
    for (std::size_t i = 0; i < messages; ++i) {
      std::byte number{0xff};
      ASSERT_EQ(receiver.read({&number, 1}), 1U);
      EXPECT_EQ(number, static_cast<std::byte>(i));
    }
    EXPECT_TRUE(receiver.empty());
    const std::byte last{42};
    own.sender.write({&last, 1}, {});
    EXPECT_TRUE(receiver.has(1));
  }
}

/// A message that says its number in each word, as long as the number says.
struct NumberedMessage {
  explicit NumberedMessage(std::uint64_t number) : words(number % (Letter::kWords + 1), number) {
    header.tag = static_cast<std::uint32_t>(number);
    header.bytes = payload().size();
  }
  Bytes payload() const { return std::as_bytes(std::span(words)); }
  Letter letter() const { return Letter::of(header.tag, tensors::DType::i64, payload()); }
  bool is(const Letter& other) const {
    return other.head == letter().head &&
           std::ranges::equal(words, std::span(other.payload).first(other.words()));
  }
  void write_to(RingSendChannel& sender) const {
    const Bytes head = std::as_bytes(std::span(&header, 1)), behind = payload();
    std::vector<std::byte> whole(head.begin(), head.end());
    whole.insert(whole.end(), behind.begin(), behind.end());
    sender.write_letter(letter(), whole);
  }

  std::vector<std::uint64_t> words;
  MessageHeader header;
};

void write_plainly(const NumberedMessage& message, RingSendChannel& sender) {
  sender.write(std::as_bytes(std::span(&message.header, 1)), message.payload());
}

/// Takes a message that is there as bytes. @return whether it is that one
bool comes_as_bytes(RingReceiveChannel& receiver, const NumberedMessage& expected) {
  IncomingMessage in;
  in.step_header(receiver);
  if (!in.has_header() || in.header().tag != expected.header.tag ||
      in.header().bytes != expected.payload().size())
    return false;
  std::vector<std::uint64_t> words(expected.words.size());
  if (!words.empty()) in.step_payload(receiver, std::as_writable_bytes(std::span(words)));
  return in.complete() && words == expected.words;
}

// Whatever is between them, and however far behind the reader is.
TEST(RingTest, ALetterIsTheNextMessageOrNone) {
  OwnRing own;
  RingReceiveChannel receiver(*own.ring, own.doorbell);
  EXPECT_EQ(receiver.see_letter(), nullptr);
  std::uint64_t written = 0, taken = 0;
  int letters = 0;
  for (std::size_t turn = 0; turn < 4000; ++turn) {
    for (std::size_t i = 0; i <= turn % (RingHeader::kMarks + 3); ++i, ++written) {
      const NumberedMessage message(written);
      if (turn % 5 == 3 && i % 2 == 1) {
        write_plainly(message, own.sender);
      } else {
        message.write_to(own.sender);
      }
    }
    for (; taken < written; ++taken) {
      const NumberedMessage expected(taken);
      const Letter* const letter = receiver.see_letter();
      if (letter != nullptr && turn % 7 != 2) {
        ASSERT_TRUE(expected.is(*letter)) << taken;
        receiver.drop_letter();
        ++letters;
      } else {
        ASSERT_TRUE(comes_as_bytes(receiver, expected)) << taken;
      }
    }
    ASSERT_TRUE(receiver.empty());
    ASSERT_EQ(receiver.see_letter(), nullptr);
  }
  EXPECT_GT(letters, 4000);
}

/// A ring that has told so often already, in letters or plainly; of the other way each mark has
/// told what it tells both ways.
struct OldRing : OwnRing {
  enum class Way { letters, plain, in_turn };

  OldRing(std::uint32_t told, Way way) : way_(way), old_sender(*ring, doorbell, 0, told) {
    for (std::uint32_t i = 0; i < RingHeader::kMarks; ++i) {
      const std::uint32_t number = told - i;
      const std::uint32_t both_ways =
          number / RingHeader::kToldBothWays * RingHeader::kToldBothWays +
          number % RingHeader::kMarks;
      RingHeader::Mark& mark = ring->mark(number);
      mark.number = way == Way::letters ? both_ways : number;
      mark.letter_number = mark.letter_filled = way == Way::plain ? both_ways : number;
    }
  }
  void write(std::uint64_t number) {
    const NumberedMessage message(number);
    const bool as_letter = way_ == Way::letters || (way_ == Way::in_turn && number % 2 == 0);
    as_letter ? message.write_to(old_sender) : write_plainly(message, old_sender);
  }

  const Way way_;
  RingSendChannel old_sender;
};

constexpr OldRing::Way kWays[] = {OldRing::Way::letters, OldRing::Way::plain,
                                  OldRing::Way::in_turn};

TEST(RingTest, NumbersGoAround) {
  for (const std::uint32_t told :
       {std::uint32_t{1} << 31, std::uint32_t{0}, std::uint32_t{5} << 28})
    for (const OldRing::Way way : kWays) {
      const std::uint32_t first = told - 20;
      OldRing own(first, way);
      RingReceiveChannel receiver(*own.ring, own.doorbell, nullptr, first);
      for (std::uint64_t number = 0; number < 60; ++number) {
        // A look in vain before each.
        ASSERT_EQ(receiver.see_letter(), nullptr) << number;
        ASSERT_FALSE(receiver.has(1)) << number;
        own.write(number);
        const NumberedMessage expected(number);
        if (const Letter* const letter = receiver.see_letter()) {
          ASSERT_TRUE(expected.is(*letter)) << number;
          receiver.drop_letter();
        } else {
          ASSERT_TRUE(comes_as_bytes(receiver, expected)) << number;
        }
      }
    }
}

TEST(RingTest, EachMarkTellsBothWaysOnceInSoManyNumbers) {
  for (const OldRing::Way way : kWays) {
    const std::uint32_t first = 7 * RingHeader::kToldBothWays - 3;
    OldRing own(first, way);
    for (std::uint64_t number = 0; number < 2 * RingHeader::kMarks; ++number) own.write(number);
    for (const RingHeader::Mark& mark : own.ring->marks) {
      EXPECT_LT(mark.number - first, 2 * RingHeader::kMarks + 1);
      EXPECT_LT(mark.letter_number - first, 2 * RingHeader::kMarks + 1);
      EXPECT_LT(mark.letter_filled - first, 2 * RingHeader::kMarks + 1);
    }
  }
}

TEST(RingTest, ALetterIsWholeWhileItsMarkIsUsedAgain) {
  OwnRing own;
  RingReceiveChannel receiver(*own.ring, own.doorbell);
  constexpr std::uint64_t kMessages = 200'000;
  std::thread producer([&] {
    for (std::uint64_t number = 0; number < kMessages; ++number) {
      const NumberedMessage message(number);
      while (!own.sender.has_room(sizeof(MessageHeader) + message.payload().size()))
        std::this_thread::yield();
      message.write_to(own.sender);
    }
  });
  std::uint64_t wrong = 0;
  for (std::uint64_t number = 0; number < kMessages; ++number) {
    const NumberedMessage expected(number);
    const Letter* letter = nullptr;
    while ((letter = receiver.see_letter()) == nullptr &&
           !receiver.has(sizeof(MessageHeader) + expected.payload().size()))
      std::this_thread::yield();
    if (letter != nullptr) {
      if (!expected.is(*letter)) ++wrong;
      receiver.drop_letter();
    } else if (!comes_as_bytes(receiver, expected)) {
      ++wrong;
    }
  }
  producer.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_TRUE(receiver.empty());
}

// Whatever has been read without the sender having been told of it.
TEST(RingTest, AsManyBytesAsItSaysAreThereAtOnceAndNoFewer) {
  OwnRing own;
  RingSendChannel& sender = own.sender;
  RingReceiveChannel receiver(*own.ring, own.doorbell);
  constexpr std::size_t kCapacity = OwnRing::kCapacity;
  const std::vector<std::byte> sent(2 * kCapacity);
  std::vector<std::byte> taken(kCapacity);
  std::size_t least = kCapacity;
  for (std::size_t header = 1; header < 5000; header += 87) {
    sender.write(sent, {});  // until it is full
    ASSERT_EQ(receiver.read(std::span(taken).first(header)), header);
    sender.write(sent, {});
    EXPECT_TRUE(receiver.has(receiver.most_at_once())) << header;
    while (!receiver.has(least)) --least;
  }
  EXPECT_LT(least, kCapacity);  // so the whole of it is too much to wait for
}

struct LendingRing : OwnRing {
  std::optional<LifeSign> life_sign = LifeSign::give(commons, 0);
  std::unique_ptr<PeerMemory> memory = PeerMemory::open(commons, 0);
};

TEST(RingTest, APayloadThatDoesNotFitIsLentUntilItIsFetched) {
  LendingRing lending;
  ASSERT_NE(lending.memory, nullptr);
  std::vector<std::byte> payload(LendingRing::kCapacity);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7);
  // Nobody who can fetch it is there yet.
  EXPECT_FALSE(lending.sender.can_lend(payload));
  RingReceiveChannel receiver(*lending.ring, lending.doorbell, lending.memory.get());
  EXPECT_TRUE(lending.sender.can_lend(payload));
  EXPECT_EQ(lending.sender.least_lent(), payload.size());
  OutgoingMessage out(1, Fingerprint(), 5, payload);
  while (!out.is_written()) out.step(lending.sender);
  EXPECT_FALSE(out.complete());
  // The next message follows at once.
  const std::byte more[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  OutgoingMessage next(1, Fingerprint(), 6, more);
  while (!next.complete()) next.step(lending.sender);
  IncomingMessage in;
  while (!in.has_header()) in.step_header(receiver);
  ASSERT_EQ(in.header().bytes, payload.size());
  std::vector<std::byte> target(payload.size());
  while (!in.complete()) in.step_payload(receiver, target);
  EXPECT_TRUE(target == payload);
  EXPECT_FALSE(out.complete());
  EXPECT_EQ(out.step(lending.sender).payload_bytes, payload.size());
  EXPECT_TRUE(out.complete());
  IncomingMessage last;
  while (!last.has_header()) last.step_header(receiver);
  EXPECT_EQ(last.header().tag, 6U);
  std::byte small[3];
  while (!last.complete()) last.step_payload(receiver, small);
  EXPECT_EQ(small[2], std::byte{3});
}

TEST(RingTest, APayloadThatFitsIsLentWhereItsSenderSaysSo) {
  LendingRing lending;
  RingReceiveChannel receiver(*lending.ring, lending.doorbell, lending.memory.get());
  const std::vector<std::byte> payload(1000, std::byte{7});
  OutgoingMessage lent(1, Fingerprint(), 5, payload, payload.size());
  OutgoingMessage written(1, Fingerprint(), 6, payload, payload.size() + 1);
  OutgoingMessage usual(1, Fingerprint(), 7, payload);
  for (OutgoingMessage* const out : {&lent, &written, &usual}) {
    out->step(lending.sender);
    EXPECT_TRUE(out->is_written());
    EXPECT_EQ(out->complete(), out != &lent);
  }
  for (int message = 0; message < 3; ++message) {
    IncomingMessage in;
    in.step_header(receiver);
    std::vector<std::byte> target(payload.size());
    in.step_payload(receiver, target);
    EXPECT_TRUE(in.complete() && target == payload) << message;
    EXPECT_EQ(in.header().lent_at != 0, message == 0);
  }
  lent.step(lending.sender);
  EXPECT_TRUE(lent.complete());
}

TEST(RingTest, APayloadThatIsNotToBeLentGoesThroughTheRingInPieces) {
  LendingRing lending;
  RingReceiveChannel receiver(*lending.ring, lending.doorbell, lending.memory.get());
  std::vector<std::byte> payload(3 * LendingRing::kCapacity), target(payload.size());
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 11);
  OutgoingMessage out(1, Fingerprint(), 5, payload, payload.size() + 1);
  IncomingMessage in;
  while (!in.complete()) {
    EXPECT_FALSE(lending.sender.has_room(LendingRing::kCapacity + 1));
    out.step(lending.sender);
    if (!in.has_header()) in.step_header(receiver);
    if (in.has_header()) in.step_payload(receiver, target);
  }
  EXPECT_EQ(in.header().lent_at, 0U);
  EXPECT_TRUE(out.complete());
  EXPECT_TRUE(target == payload);
}

TEST(RingTest, APayloadThatWasWithdrawnIsNotFetched) {
  LendingRing lending;
  std::vector<std::byte> payload(LendingRing::kCapacity), target(LendingRing::kCapacity);
  RingReceiveChannel receiver(*lending.ring, lending.doorbell, lending.memory.get());
  OutgoingMessage out(1, Fingerprint(), 5, payload);
  while (!out.is_written()) out.step(lending.sender);
  lending.sender.withdraw();
  IncomingMessage in;
  while (!in.has_header()) in.step_header(receiver);
  EXPECT_EQ(in.step_payload(receiver, target).bytes, 0U);
  EXPECT_FALSE(in.complete());
  EXPECT_TRUE(receiver.broken());
}

TEST(RingTest, MemoryThatIsGoneIsAnErrorOnlyWhereItWasNotWithdrawn) {
  for (const bool is_withdrawn : {false, true}) {
    LendingRing lending;
    std::vector<std::byte> target(LendingRing::kCapacity);
    RingReceiveChannel receiver(*lending.ring, lending.doorbell, lending.memory.get());
    void* const memory =
        ::mmap(nullptr, target.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    OutgoingMessage out(1, Fingerprint(), 5, {static_cast<std::byte*>(memory), target.size()});
    while (!out.is_written()) out.step(lending.sender);
    IncomingMessage in;
    while (!in.has_header()) in.step_header(receiver);
    if (is_withdrawn) lending.sender.withdraw();
    ASSERT_EQ(::munmap(memory, target.size()), 0);
    const auto error = error_of([&] { in.step_payload(receiver, target); });
    EXPECT_EQ(error.has_value(), !is_withdrawn);
    EXPECT_EQ(receiver.broken(), is_withdrawn);
    EXPECT_FALSE(in.complete());
  }
}

/// Bytes that differ from their neighbours and from those of other numbers.
std::vector<std::byte> numbered_bytes(std::size_t count, std::size_t number) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(i * 31 + number * 7 + 1);
  return bytes;
}

// Headers and payloads begin and end everywhere, so each wraps around the ring's end again and
// again.
TEST(RingTest, WhatFrontShowsAndWhatLiesBehindItIsWhatWasWritten) {
  OwnRing own;
  RingReceiveChannel receiver(*own.ring, own.doorbell);
  constexpr std::size_t kHeader = 88;
  std::size_t position = 0, shown = 0, split_headers = 0, split_payloads = 0;
  for (std::size_t number = 0; number < 3000; ++number) {
    const std::size_t bytes = number % 5 == 0 ? 0 : number * 37 % 1500;
    const std::vector<std::byte> header = numbered_bytes(kHeader, number),
                                 payload = numbered_bytes(bytes, number + 1);
    ASSERT_EQ(own.sender.write(header, payload), kHeader + bytes);
    ASSERT_TRUE(receiver.has(kHeader + bytes));
    const std::size_t until_end = OwnRing::kCapacity - position;
    const std::byte* const front = receiver.front(kHeader);
    ASSERT_EQ(front == nullptr, until_end < kHeader) << position;
    std::vector<std::byte> taken(bytes);
    if (front != nullptr) {
      ++shown;
      split_payloads += until_end < kHeader + bytes ? 1 : 0;
      EXPECT_TRUE(std::equal(header.begin(), header.end(), front)) << number;
      // To look takes nothing.
      EXPECT_EQ(receiver.front(kHeader), front);
      receiver.read_behind(kHeader, taken);
    } else {
      ++split_headers;
      std::vector<std::byte> whole(kHeader);
      ASSERT_EQ(receiver.read(whole), kHeader);
      EXPECT_TRUE(whole == header);
      ASSERT_EQ(receiver.read(taken), bytes);
    }
    ASSERT_TRUE(taken == payload) << number << ", " << bytes << " bytes at " << position;
    EXPECT_FALSE(receiver.has(1));
    EXPECT_TRUE(receiver.empty());
    position = (position + kHeader + bytes) % OwnRing::kCapacity;
  }
  EXPECT_GT(shown, 2000U);
  EXPECT_GT(split_headers, 0U);
  EXPECT_GT(split_payloads, 0U);
}

// A whole message fills the ring to its last byte: what was taken by read_behind() is room again.
TEST(RingTest, WhatIsTakenBehindTheFrontIsRoomAgain) {
  OwnRing own;
  RingReceiveChannel receiver(*own.ring, own.doorbell);
  const std::vector<std::byte> header = numbered_bytes(88, 1),
                               payload = numbered_bytes(OwnRing::kCapacity - 88, 2);
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_TRUE(own.sender.has_room(OwnRing::kCapacity)) << turn;
    std::size_t written = own.sender.write(header, payload);
    ASSERT_EQ(written, OwnRing::kCapacity);
    EXPECT_FALSE(own.sender.has_room(1));
    std::vector<std::byte> taken(payload.size());
    ASSERT_TRUE(receiver.has(OwnRing::kCapacity));
    ASSERT_NE(receiver.front(header.size()), nullptr);
    receiver.read_behind(header.size(), taken);
    EXPECT_TRUE(taken == payload);
  }
}

TEST(RingTest, AMessageIsTakenWholeOnlyWhereItsHeaderIsTheAwaitedOne) {
  OwnRing own;
  RingReceiveChannel receiver(*own.ring, own.doorbell);
  const std::vector<std::byte> payload = numbered_bytes(100, 3);
  OutgoingMessage out(1, Fingerprint(), 5, payload);
  out.step(own.sender);
  ASSERT_TRUE(out.complete());
  const std::size_t all = sizeof(MessageHeader) + payload.size();
  EXPECT_TRUE(receiver.has(all));
  EXPECT_FALSE(receiver.has(all + 1));
  std::vector<std::byte> target(payload.size());
  const auto take = [&](std::uint32_t tag) {
    return take_whole_message(receiver, target,
                              [&](const MessageHeader& header) { return header.tag == tag; });
  };
  EXPECT_EQ(take(6).bytes, 0U);
  EXPECT_TRUE(receiver.has(all));
  const Progress taken = take(5);
  EXPECT_EQ(taken.bytes, all);
  EXPECT_EQ(taken.payload_bytes, payload.size());
  EXPECT_TRUE(target == payload);
  EXPECT_TRUE(receiver.empty());
}

}  // namespace
}  // namespace dtrun::collectives::cpu
