// DataLoader: every sample once an epoch over all ranks, the same order wherever one resumes, and
// what it refuses.
#include "dtrun/dtensor/data/data_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <limits>
#include <mutex>
#include <set>

#include "data/shuffle.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"

namespace dtrun::dtensor::data {
namespace {

using testing::ElementsAre;

/// Sample i is the number i.
std::shared_ptr<const Dataset> numbers(std::int64_t count) {
  return std::make_shared<TensorDataset>(Tensors{arange(count)});
}

std::vector<std::int64_t> epoch_of(DataLoader& loader) {
  std::vector<std::int64_t> all;
  for (const Tensors& batch : loader) {
    for (const std::int64_t number : batch[0].to_vector_i64()) all.push_back(number);
  }
  return all;
}

TEST(ShuffleTest, IsAPermutationOfAnyNumberOfNumbers) {
  for (const std::int64_t n : {1, 2, 3, 5, 16, 17, 1000, 65537}) {
    std::set<std::int64_t> seen;
    const Shuffle shuffle(n, 7);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t to = shuffle(i);
      EXPECT_GE(to, 0);
      EXPECT_LT(to, n);
      EXPECT_TRUE(seen.insert(to).second);
    }
  }
  // Beyond what could be held.
  EXPECT_LT(Shuffle(std::int64_t{1} << 60, 3)(12345), std::int64_t{1} << 60);
}

TEST(ShuffleTest, NumbersStayWhereTheyAreByChanceOnly) {
  double stays = 0, follow = 0;
  for (std::uint64_t key = 0; key < 1000; ++key) {
    const Shuffle shuffle(100, mixed(1, key));
    for (std::int64_t i = 0; i < 100; ++i) {
      stays += shuffle(i) == i ? 1 : 0;
      follow += i > 0 && shuffle(i) == shuffle(i - 1) + 1 ? 1 : 0;
    }
  }
  EXPECT_NEAR(stays / 1000, 1, 0.1);
  EXPECT_NEAR(follow / 1000, 0.99, 0.1);
}

TEST(ShuffleTest, AllPairsOfFewNumbersComeFirstAsOften) {
  constexpr std::int64_t kNumbers = 7;
  constexpr std::uint64_t kEpochs = 20000;
  double often[kNumbers][kNumbers] = {};
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Shuffle shuffle(kNumbers, mixed(0, epoch));
    ++often[shuffle(0)][shuffle(1)];
  }
  const double expected = static_cast<double>(kEpochs) / (kNumbers * (kNumbers - 1));
  double chi_squared = 0;
  for (std::int64_t i = 0; i < kNumbers; ++i) {
    for (std::int64_t j = 0; j < kNumbers; ++j)
      chi_squared += i == j ? 0 : std::pow(often[i][j] - expected, 2) / expected;
  }
  // Of 41 degrees of freedom: more by chance once in 10,000 times.
  EXPECT_LT(chi_squared, 82);
}

TEST(DataLoaderTest, RanksShareEachEpochAndShuffleItAnew) {
  std::vector<std::int64_t> epochs[2];
  for (int rank = 0; rank < 3; ++rank) {
    DataLoader loader(numbers(12), {.batch_size = 2, .seed = 5, .rank = rank, .ranks = 3});
    EXPECT_EQ(loader.batches(), 2);
    for (auto& all : epochs) {
      for (const std::int64_t number : epoch_of(loader)) all.push_back(number);
    }
    EXPECT_EQ(loader.position(), (DataPosition{2, 0}));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& all : epochs) {
    std::sort(all.begin(), all.end());
    EXPECT_THAT(all, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  }
}

TEST(DataLoaderTest, WhatIsLeftOverIsFilledUpOrDropped) {
  const auto of = [](int rank, bool drop_last) {
    DataLoader loader(
        numbers(7),
        {.batch_size = 3, .shuffle = false, .rank = rank, .ranks = 2, .drop_last = drop_last});
    std::vector<std::int64_t> sizes;
    for (const Tensors& batch : loader) sizes.push_back(batch[0].size(0));
    return std::pair(sizes, epoch_of(loader));
  };
  EXPECT_THAT(of(0, false).first, ElementsAre(3, 1));
  EXPECT_THAT(of(0, false).second, ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(of(1, false).second, ElementsAre(1, 3, 5, 0));
  EXPECT_THAT(of(0, true).second, ElementsAre(0, 2, 4));
  EXPECT_THAT(of(1, true).second, ElementsAre(1, 3, 5));
}

TEST(DataLoaderTest, GoesOnWhereverItStood) {
  for (const int prefetch : {0, 1, 4}) {
    const DataLoaderOptions options{.batch_size = 2, .seed = 3, .prefetch = prefetch};
    DataLoader whole(numbers(9), options);
    std::vector<std::vector<double>> batches;
    std::vector<DataPosition> positions;
    for (int i = 0; i < 12; ++i) {
      positions.push_back(whole.position());
      batches.push_back(whole.next()[0].to_vector());
    }
    for (std::size_t from = 0; from < positions.size(); ++from) {
      DataLoader resumed(numbers(9), options);
      resumed.next();
      resumed.set_position(positions[from]);
      for (std::size_t i = from; i < batches.size(); ++i)
        EXPECT_EQ(resumed.next()[0].to_vector(), batches[i]);
    }
  }
}

/// Fails at one sample, as often as it is told to.
struct Failing : Dataset {
  std::int64_t size() const override { return 4; }
  Tensors get(std::int64_t index) const override {
    if (index == 2 && failures-- > 0) throw std::runtime_error("no sample 2");
    return {full({1}, static_cast<double>(index))};
  }
  mutable std::atomic<int> failures = 1;
};

TEST(DataLoaderTest, WhatTheSetThrowsComesAtItsBatchAndCanBeTriedAgain) {
  for (const int prefetch : {0, 3}) {
    DataLoader loader(std::make_shared<Failing>(), {.shuffle = false, .prefetch = prefetch});
    EXPECT_EQ(loader.next()[0].item(), 0);
    EXPECT_EQ(loader.next()[0].item(), 1);
    EXPECT_THROW(loader.next(), std::runtime_error);
    EXPECT_EQ(loader.next()[0].item(), 2);
    EXPECT_EQ(loader.next()[0].item(), 3);
  }
}

TEST(DataLoaderTest, ThatIsNotReadToItsEndEnds) {
  DataLoader loader(numbers(1000), {.prefetch = 5});
  loader.next();
}

TEST(DataLoaderTest, ABatchMayBeLargerThanAnySet) {
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  DataLoader loader(numbers(5), {.batch_size = kAll, .shuffle = false});
  EXPECT_EQ(loader.batches(), 1);
  EXPECT_THAT(epoch_of(loader), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(loader.position(), (DataPosition{1, 0}));
}

TEST(DataLoaderTest, RanksBeyondTheSamplesBeginAgain) {
  for (int rank = 0; rank < 5; ++rank) {
    DataLoader loader(numbers(2), {.shuffle = false, .rank = rank, .ranks = 5});
    EXPECT_THAT(epoch_of(loader), ElementsAre(rank % 2));
  }
  expect_refused([] { DataLoader(numbers(2), {.rank = 4, .ranks = 5, .drop_last = true}); },
                 "of 2 samples for 5 ranks");
}

TEST(DataLoaderTest, ALoopEndsWithItsEpochAlsoWhereItsBodyTakesBatches) {
  DataLoader loader(numbers(6), {.batch_size = 2, .shuffle = false});
  int loops = 0;
  for (const Tensors& batch : loader) {
    ++loops;
    EXPECT_EQ(batch[0].size(0), 2);
    if (loops == 3) loader.next();
    ASSERT_LT(loops, 4);
  }
  EXPECT_EQ(loops, 3);
  EXPECT_EQ(loader.position(), (DataPosition{1, 1}));
}

/// Counts what has been asked of it. Sample 3 is as `odd` says.
struct Counting : Dataset {
  enum class Odd : std::uint8_t { none, fewer, more, longer, undefined };
  explicit Counting(Odd its_kind = Odd::none) : odd(its_kind) {}
  std::int64_t size() const override { return 100; }
  Tensors get(std::int64_t index) const override {
    {
      const std::lock_guard lock(mutex);
      ++asked;
    }
    changed.notify_all();
    if (index != 3 || odd == Odd::none) return {zeros(2), zeros(1)};
    if (odd == Odd::fewer) return {zeros(2)};
    if (odd == Odd::more) return {zeros(2), zeros(1), zeros(1)};
    if (odd == Odd::longer) return {zeros(2), zeros(5)};
    return {zeros(2), Tensor()};
  }
  /// False: it has not been asked so often within the limit of a test that hangs.
  bool waits_until_asked(int times) const {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(30), [&] { return asked >= times; });
  }
  const Odd odd;
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  mutable std::atomic<int> asked = 0;
};

TEST(DataLoaderTest, SamplesThatAreNotAlikeAreRefusedByTheirNumber) {
  using Odd = Counting::Odd;
  for (const auto& [odd, words] : std::vector<std::pair<Odd, const char*>>{
           {Odd::fewer, "sample 3 has 1 tensor"},
           {Odd::more, "sample 3 has 3 tensors"},
           {Odd::longer, "tensor 1 of sample 3 is f32[5]"},
           {Odd::undefined, "tensor 1 of sample 3 is undefined"}}) {
    DataLoader loader(std::make_shared<Counting>(odd), {.batch_size = 4, .shuffle = false});
    expect_refused([&] { loader.next(); }, words);
  }
}

TEST(DataLoaderTest, NoMoreBatchesAreMadeAheadThanAreAskedFor) {
  const auto set = std::make_shared<Counting>();
  DataLoader loader(set, {.prefetch = 1});
  for (int i = 1; i <= 50; ++i) {
    loader.next();
    // The one that was given, and the one that waits.
    EXPECT_LE(set->asked, i + 1);
  }
}

TEST(DataLoaderTest, BatchesAreMadeAheadWithoutAnotherNext) {
  for (const int prefetch : {1, 2}) {
    const auto set = std::make_shared<Counting>();
    DataLoader loader(set, {.prefetch = prefetch});
    for (int i = 1; i <= 3; ++i) {
      loader.next();
      EXPECT_TRUE(set->waits_until_asked(i + prefetch)) << i << " of " << prefetch;
    }
  }
  const auto set = std::make_shared<Counting>();
  DataLoader loader(set, {.prefetch = 0});
  loader.next();
  EXPECT_EQ(set->asked, 1);
}

/// A file for one test.
struct TokenPath {
  explicit TokenPath(std::string_view bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
  }
  ~TokenPath() { std::remove(path.c_str()); }
  const std::string path = testing::TempDir() + "tokens." + std::to_string(::getpid());
};

/// Files that are read, and files that are mapped.
class TokenFileTest : public testing::TestWithParam<bool> {
 protected:
  static TokenFileOptions with(TokenFileOptions options) {
    options.mapped = GetParam();
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Access, TokenFileTest, testing::Bool(), [](const auto& mapped) {
  return std::string(mapped.param ? "Mapped" : "Read");
});

TEST_P(TokenFileTest, SamplesThatItDoesNotHaveAreRefused) {
  const TokenPath file("0123456789");
  const TokenFile tokens(file.path, with({.context = 3}));
  for (const std::int64_t index : {std::int64_t{-1}, std::int64_t{3}, std::int64_t{1} << 62})
    expect_refused([&] { tokens.get(index); }, "sample " + std::to_string(index) + " of 3");
  const TensorDataset rows({arange(3)});
  expect_refused([&] { rows.get(3); }, "");
}

TEST_P(TokenFileTest, AFileThatHasBecomeShorterIsAnErrorAndNoCrash) {
  const TokenPath file(std::string(1 << 16, 'a'));
  const auto tokens = std::make_shared<TokenFile>(file.path, with({.context = 1 << 14}));
  // A thread that makes batches ahead may be in the mapping just when the file loses its end, which
  // is no error that can be thrown.
  DataLoader loader(tokens, {.shuffle = false, .prefetch = GetParam() ? 0 : 2});
  EXPECT_EQ(loader.next()[0].size(0), 1);
  ASSERT_EQ(::truncate(file.path.c_str(), 100), 0);
  expect_refused([&] { tokens->get(0); }, "is shorter than it was", base::ErrorCode::kSystem);
  expect_refused(
      [&] {
        for (int i = 0; i < 4; ++i) loader.next();
      },
      "is shorter than it was", base::ErrorCode::kSystem);
}

TEST_P(TokenFileTest, AFileOfAnotherTokenTypeIsRefusedWhereItsSizeTells) {
  const TokenPath file("0123456789");
  expect_refused([&] { TokenFile(file.path, with({.context = 1, .token = TokenType::i32})); },
                 "10 bytes are no whole number of i32 tokens");
  expect_refused(
      [&] { TokenFile(file.path, with({.context = 1, .token = TokenType::u16, .skip_bytes = 1})); },
      "9 bytes are no whole number of u16 tokens");
  expect_refused([&] { TokenFile(file.path, with({.context = 1, .skip_bytes = 11})); },
                 "11 bytes to skip");
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  expect_refused([&] { TokenFile(file.path, with({.context = kMost})); }, "has 10 tokens");
  EXPECT_EQ(TokenFile(file.path, with({.context = 9, .stride = kMost})).size(), 1);
}

TEST_P(TokenFileTest, WhatIsNoFileIsRefusedAndNotWaitedFor) {
  const std::string pipe = testing::TempDir() + "tokens.pipe." + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_refused([&] { TokenFile(pipe, with({.context = 1})); }, "is no regular file");
  std::remove(pipe.c_str());
  expect_refused([] { TokenFile(testing::TempDir(), with({.context = 1})); }, "is no regular file");
}

TEST_P(TokenFileTest, TokensBeyondFourGigabytesAreFound) {
  const TokenPath file("");
  constexpr std::int64_t kBytes = (std::int64_t{5} << 30) + 2;
  ASSERT_EQ(::truncate(file.path.c_str(), kBytes), 0);  // a hole: no room is taken
  std::fstream(file.path, std::ios::binary | std::ios::in | std::ios::out)
      .seekp(kBytes - 4)
      .write("\1\2\3\4", 4);
  const TokenFile tokens(file.path, with({.context = 1, .token = TokenType::u16}));
  EXPECT_EQ(tokens.size(), kBytes / 2 - 1);
  EXPECT_EQ(tokens.get(kBytes / 2 - 2)[0].item(), 0x0201);
  EXPECT_EQ(tokens.get(kBytes / 2 - 2)[1].item(), 0x0403);
}

TEST_P(TokenFileTest, SamplesAreTextsAndWhatFollows) {
  std::string bytes = "head";
  for (std::int32_t i = 0; i < 10; ++i) bytes.append(reinterpret_cast<const char*>(&i), sizeof i);
  const TokenPath file(bytes);
  const TokenFile apart(file.path, with({.context = 3, .token = TokenType::i32, .skip_bytes = 4}));
  EXPECT_EQ(apart.tokens(), 10);
  EXPECT_EQ(apart.size(), 3);
  EXPECT_THAT(apart.get(2)[0].to_vector_i64(), ElementsAre(6, 7, 8));
  EXPECT_THAT(apart.get(2)[1].to_vector_i64(), ElementsAre(7, 8, 9));
  const TokenFile overlapping(
      file.path, with({.context = 3, .stride = 1, .token = TokenType::i32, .skip_bytes = 4}));
  EXPECT_EQ(overlapping.size(), 7);
  EXPECT_THAT(overlapping.get(6)[1].to_vector_i64(), ElementsAre(7, 8, 9));
  EXPECT_EQ(TokenFile(file.path, with({.context = 43})).size(), 1);
  EXPECT_THAT(
      TokenFile(file.path, with({.context = 2, .token = TokenType::u16})).get(0)[0].to_vector_i64(),
      ElementsAre('h' + 256 * 'e', 'a' + 256 * 'd'));
  expect_refused([&] { TokenFile(file.path, with({.context = 44})); }, "has 44 tokens");
  expect_refused([&] { TokenFile(file.path, with({.context = 0})); }, "a context of 0");
  expect_refused([&] { TokenFile("/nowhere", with({.context = 1})); }, "cannot open the token file",
                 base::ErrorCode::kNotFound);
}

TEST(DataLoaderTest, WhatCannotBeLoadedIsRefused) {
  expect_refused([] { DataLoader(nullptr, {}); }, "of no set");
  expect_refused([] { DataLoader(numbers(4), {.batch_size = 0}); }, "batches of 0");
  expect_refused([] { DataLoader(numbers(4), {.rank = 2, .ranks = 2}); }, "rank 2 of 2");
  expect_refused([] { DataLoader(numbers(4), {.batch_size = 5, .drop_last = true}); },
                 "drop_last = false");
  expect_refused([] { DataLoader(numbers(4), {}).set_position({0, 4}); }, "an epoch has 4 steps");
  expect_refused([] { TensorDataset({arange(3), arange(4)}); }, "3 and 4 rows");
}

}  // namespace
}  // namespace dtrun::dtensor::data
