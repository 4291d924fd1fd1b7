#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"
#include "dtrun/tensor/ops/pointwise.h"
#include "host_blocks.h"
#include "tensor/all_dtypes.h"
#include "thread_blocks.h"

// The sanitizers' allocators abort on a request that is too large, unless told otherwise.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;
using Values = std::vector<double>;
TEST(StorageTest, MemoryIsAlignedTo64BytesAndZeroBytesAreFine) {
  for (const std::size_t bytes : {0, 1, 63, 4096}) {
    const auto storage = Storage::allocate(bytes, kCpu);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(storage->data()) % 64, 0u);
    EXPECT_EQ(storage->bytes(), bytes);
  }
}

TEST(StorageTest, WrappedMemoryIsReleasedOnceWhenTheLastUserIsGone) {
  int released = 0;
  float values[] = {1, 2, 3};
  {
    const auto storage = Storage::wrap(values, sizeof values, kCpu, [&released] { ++released; });
    const LocalTensor whole(storage, DType::f32, {3}, {1});
    const LocalTensor part = whole.slice(0, 1, 3);
    part.fill_(7);
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(values[2], 7);
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(StorageTest, ALargeBlockIsKeptForTheNextOfItsSizeAndNoMoreThanABound) {
  constexpr std::size_t kBytes = std::size_t{40} << 20;
  const void* const first = Storage::allocate(kBytes, kCpu)->data();
  EXPECT_EQ(Storage::allocate(kBytes, kCpu)->data(), first);
  std::vector<StoragePointer> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(Storage::allocate(kBytes, kCpu));
  blocks.clear();
  EXPECT_LE(host_blocks::kept_bytes(), host_blocks::kMostKeptBytes);
  EXPECT_GE(host_blocks::kept_bytes(), kBytes);
  // Larger than the bound: goes back at once.
  const std::size_t before = host_blocks::kept_bytes();
  Storage::allocate(host_blocks::kMostKeptBytes + 1, kCpu);
  EXPECT_EQ(host_blocks::kept_bytes(), before);
}

TEST(StorageTest, ContentsAreExchangedAndAddressesStay) {
  for (const std::size_t bytes : {std::size_t{3} << 20, (std::size_t{33} << 20) + 12}) {
    const auto own = Storage::allocate(bytes, kCpu), other = Storage::allocate(bytes, kCpu);
    auto* const own_data = static_cast<unsigned char*>(own->data());
    auto* const other_data = static_cast<unsigned char*>(other->data());
    // Again and again: what a move leaves behind must be fit for the next.
    for (int round = 0; round < 3; ++round) {
      std::memset(own_data, 1, bytes);
      for (std::size_t i = 0; i < bytes; ++i)
        other_data[i] = static_cast<unsigned char>(i * 7 + i / 4096);
      const std::uint32_t version = own->version();
      ASSERT_TRUE(own->exchange_contents(*other));
      EXPECT_EQ(own->data(), own_data);
      EXPECT_EQ(other->data(), other_data);
      EXPECT_EQ(own->version(), version);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < bytes; ++i)
        wrong += own_data[i] != static_cast<unsigned char>(i * 7 + i / 4096);
      EXPECT_EQ(wrong, 0u);
      EXPECT_EQ(std::count(other_data, other_data + bytes, 1), static_cast<std::ptrdiff_t>(bytes));
      // The other has no page of the first any more, and can be written to.
      std::memset(other_data, 2, bytes);
      EXPECT_NE(own_data[bytes - 1], 2);
    }
  }
}

TEST(StorageTest, ContentsOfAnotherSizeOrSmallOnesOrTheCallersAreNotExchanged) {
  constexpr std::size_t kBytes = std::size_t{40} << 20;
  const auto own = Storage::allocate(kBytes, kCpu);
  EXPECT_FALSE(own->exchange_contents(*own));
  EXPECT_FALSE(own->exchange_contents(*Storage::allocate(kBytes + 4, kCpu)));
  const auto small = Storage::allocate(4096, kCpu);
  EXPECT_FALSE(small->exchange_contents(*Storage::allocate(4096, kCpu)));
  float value = 3;
  const auto wrapped = Storage::wrap(&value, 4, kCpu, [] {});
  EXPECT_FALSE(wrapped->exchange_contents(*Storage::allocate(4, kCpu)));
  EXPECT_EQ(value, 3);
}

TEST(StorageTest, AThreadKeepsMiddlingBlocksUpToABoundAndFreesThemAtItsEnd) {
  constexpr std::size_t kBytes = 5000;
  std::thread([] {
    const void* const first = Storage::allocate(kBytes, kCpu)->data();
    EXPECT_EQ(Storage::allocate(kBytes, kCpu)->data(), first);
    EXPECT_EQ(Storage::allocate(kBytes - 1, kCpu)->data(), first);  // of its size class
    EXPECT_NE(Storage::allocate(2 * kBytes, kCpu)->data(), first);
    std::vector<StoragePointer> blocks;
    for (int i = 0; i < 100; ++i) blocks.push_back(Storage::allocate(600000, kCpu));
    while (!blocks.empty()) {
      blocks.pop_back();
      EXPECT_LE(thread_blocks::kept_bytes(), thread_blocks::kMostKeptBytes);
      EXPECT_GE(thread_blocks::kept_bytes(), 600000u);
    }
    // What another thread gives back is its own.
    const std::size_t before = thread_blocks::kept_bytes();
    StoragePointer storage = Storage::allocate(40000, kCpu);
    std::thread([&storage] {
      storage = {};
      EXPECT_GE(thread_blocks::kept_bytes(), 40000u);
    }).join();
    EXPECT_EQ(thread_blocks::kept_bytes(), before);
  }).join();
}

TEST(StorageTest, ATensorMayOutliveWhatItsThreadKeeps) {
  std::thread([] {
    struct Last {
      StoragePointer storage;
    };
    // Made before the thread keeps anything: ends after what it keeps has been freed.
    static thread_local Last last;
    last.storage = Storage::allocate(3000, kCpu);
    Storage::allocate(5000, kCpu);
    EXPECT_GT(thread_blocks::kept_bytes(), 0u);
  }).join();
}
#endif

TEST(StorageTest, MemoryThatIsNotThereIsAnError) {
  for (const std::size_t bytes : {std::size_t{1} << 60, ~std::size_t{0}}) {
    try {
      Storage::allocate(bytes, kCpu);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kSystem);
    }
  }
  EXPECT_THROW(empty({std::int64_t{1} << 62}, {DType::f64}), Error);
}

TEST(TensorDeathTest, ATensorOutsideItsStorageIsOurBug) {
  const auto storage = Storage::allocate(8, kCpu);
  EXPECT_DEATH(LocalTensor(storage, DType::f32, {3}, {1}), "lies_inside");
  EXPECT_DEATH(LocalTensor(storage, DType::f32, {2}, {1}, 1), "lies_inside");
  EXPECT_DEATH(LocalTensor(storage, DType::f32, {2}, {-1}), "lies_inside");
}

TEST(CopyTest, EveryDTypeConvertsToEveryOther) {
  const LocalTensor source = tensor_from(Values{0, 1, 2, 100}, {4}, DType::f64);
  for (const DType from : kAllDTypes) {
    for (const DType to : kAllDTypes) {
      const bool was_bool = from == DType::boolean || to == DType::boolean;
      const Values expected = was_bool ? Values{0, 1, 1, 1} : Values{0, 1, 2, 100};
      EXPECT_EQ(source.to(from).to(to).to_vector(), expected)
          << dtype_name(from) << " to " << dtype_name(to);
      const LocalTensor spread = zeros({4, 3}, {to});
      spread.select(1, 1).copy_(source.to(from));
      EXPECT_EQ(spread.select(1, 1).to_vector(), expected);
      EXPECT_EQ(spread.select(1, 0).to_vector(), (Values{0, 0, 0, 0}));
    }
  }
}

TEST(CopyTest, FloatingPointTruncatesToIntegersAndWhatDoesNotFitIsTheLowest) {
  const LocalTensor values = tensor_from(Values{-1.9, 2.9, 300, -3}, {4}, DType::f32);
  EXPECT_EQ(values.to(DType::i32).to_vector_i64(), (std::vector<std::int64_t>{-1, 2, 300, -3}));
  EXPECT_EQ(values.to(DType::u8).to_vector_i64(), (std::vector<std::int64_t>{255, 2, 44, 253}));
  const LocalTensor wild = tensor_from(Values{NAN, INFINITY, -1e30}, {3}, DType::f64);
  constexpr auto kLow = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(wild.to(DType::i64).to_vector_i64(), (std::vector<std::int64_t>{kLow, kLow, kLow}));
  EXPECT_EQ(wild.to(DType::boolean).to_vector(), (Values{1, 1, 1}));
}

TEST(CopyTest, LargeIntegersSurvive) {
  const std::vector<std::int64_t> values = {std::numeric_limits<std::int64_t>::max(),
                                            (std::int64_t{1} << 53) + 1};
  EXPECT_EQ(tensor_from(values, {2}, DType::i64).to_vector_i64(), values);
}

TEST(CopyTest, ASourceIsBroadcast) {
  const LocalTensor target = zeros({2, 3});
  target.copy_(arange(3));
  EXPECT_EQ(target.to_vector(), (Values{0, 1, 2, 0, 1, 2}));
  EXPECT_THROW(target.copy_(arange(2)), Error);
  EXPECT_THROW(arange(3).copy_(target), Error);
}

TEST(CopyTest, OverlappingViewsCopyAsIfThroughATemporary) {
  const LocalTensor numbers = arange(6);
  numbers.slice(0, 1, 6).copy_(numbers.slice(0, 0, 5));
  EXPECT_EQ(numbers.to_vector(), (Values{0, 0, 1, 2, 3, 4}));
  const LocalTensor square = arange(4).view({2, 2});
  square.copy_(square.transpose(0, 1));
  EXPECT_EQ(square.to_vector(), (Values{0, 2, 1, 3}));
  square.copy_(square);
  EXPECT_EQ(square.to_vector(), (Values{0, 2, 1, 3}));
}

TEST(CopyTest, LargeTransposesGoThroughTilesAndStayRight) {
  constexpr std::int64_t kRows = 130;
  constexpr std::int64_t kColumns = 71;
  const LocalTensor source = arange(2 * kRows * kColumns).view({2, kRows, kColumns});
  const LocalTensor turned = source.transpose(1, 2).clone();
  ASSERT_TRUE(turned.is_contiguous());
  const std::int64_t* values = turned.data_as<std::int64_t>();
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t c = 0; c < kColumns; ++c) {
      for (std::int64_t r = 0; r < kRows; ++r) {
        ASSERT_EQ(*values++, (b * kRows + r) * kColumns + c);
      }
    }
  }
}

TEST(CopyTest, TransposesOfEverySizeAndItemSizeAreRight) {
  for (const DType dtype : {DType::bf16, DType::i16, DType::f32, DType::i32, DType::f64, DType::i64,
                            DType::u8, DType::f16}) {
    for (const std::int64_t rows : {1, 7, 8, 9, 33, 100}) {
      for (const std::int64_t columns : {1, 8, 15, 64, 67}) {
        // Rows lie at a distance of three more elements than they have.
        const LocalTensor wide =
            remainder(arange(rows * (columns + 3)), 97).view({rows, columns + 3});
        const LocalTensor source = wide.to(dtype).narrow(1, 2, columns);
        const LocalTensor turned = source.transpose(0, 1).clone();
        ASSERT_TRUE(turned.is_contiguous());
        const std::vector<double> values = turned.to_vector();
        for (std::int64_t c = 0; c < columns; ++c) {
          for (std::int64_t r = 0; r < rows; ++r) {
            ASSERT_EQ(values[static_cast<std::size_t>(c * rows + r)],
                      static_cast<double>((r * (columns + 3) + c + 2) % 97))
                << dtype_name(dtype) << " " << rows << " x " << columns;
          }
        }
      }
    }
  }
}

TEST(CopyTest, ItemWantsOneElement) {
  EXPECT_EQ(full({1, 1}, 2.5).item(), 2.5);
  EXPECT_THROW(zeros({2}).item(), Error);
  EXPECT_THROW(zeros({0}).item(), Error);
}

TEST(CreationTest, FilledTensorsHoldTheirValue) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(zeros({2}, {dtype}).to_vector(), (Values{0, 0}));
    EXPECT_EQ(ones({2}, {dtype}).to_vector(), (Values{1, 1}));
  }
  EXPECT_EQ(full({2, 0}, 3).numel(), 0);
  EXPECT_EQ(full({}, 3, {DType::bf16}).item(), 3);
}

TEST(CreationTest, ANumberThatADtypeDoesNotHaveIsRefused) {
  const auto fill = [](DType dtype, Scalar value) { full({2}, value, {.dtype = dtype}); };
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  EXPECT_THROW(fill(DType::u8, 300), base::Error);
  EXPECT_THROW(fill(DType::u8, -1.0), base::Error);
  EXPECT_THROW(fill(DType::i32, std::int64_t{1} << 31), base::Error);
  EXPECT_THROW(fill(DType::i32, nan), base::Error);
  EXPECT_THROW(fill(DType::i64, 0x1p63), base::Error);
  EXPECT_THROW(fill(DType::i64, infinity), base::Error);
  EXPECT_THROW(fill(DType::f16, 65505.0), base::Error);
  EXPECT_THROW(fill(DType::bf16, 1e39), base::Error);
  EXPECT_THROW(fill(DType::f32, 1e39), base::Error);
  EXPECT_THROW(scatter(zeros({2}, {DType::u8}), 0, arange(1), 300), base::Error);
  EXPECT_THROW(pad(zeros({2}, {DType::u8}), {1, 0}, 300), base::Error);
  EXPECT_THROW(clamp(zeros({2}, {DType::i32}), INT64_MIN, INT64_MAX), base::Error);
  EXPECT_THROW(clamp(zeros({2}, {DType::f16}), 1e10, {}), base::Error);
  // As in PyTorch.
  EXPECT_EQ(full({}, -1, {DType::u8}).item(), 255);
  EXPECT_EQ(full({}, infinity, {DType::f16}).item(), infinity);
  EXPECT_EQ(full({}, INT64_MIN, {DType::i64}).item(), -0x1p63);
  EXPECT_EQ(full({}, nan, {DType::boolean}).item(), 1);
}

TEST(CreationTest, BytesThat64BitsDoNotCountAreRefused) {
  float memory = 0;
  EXPECT_THROW(from_blob(&memory, {std::int64_t{1} << 62}), base::Error);
}

TEST(CreationTest, ArangeOfIntegersCountsInThem) {
  EXPECT_EQ(arange(0.5, 5.5, 1.5, {DType::i64}).to_vector(), (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_THROW(arange(0, 2, 0.5, {DType::i64}), base::Error);
}

TEST(CreationTest, ArangeCounts) {
  EXPECT_EQ(arange(3).dtype(), DType::i64);
  EXPECT_EQ(arange(1, 2, 0.25, {DType::f32}).to_vector(), (Values{1, 1.25, 1.5, 1.75}));
  EXPECT_EQ(arange(5, 0, -2, {DType::i32}).to_vector(), (Values{5, 3, 1}));
  EXPECT_THROW(arange(-1), Error);
  EXPECT_THROW(arange(0, 1, 0, {}), Error);
  EXPECT_THROW(arange(0, 1, -1, {}), Error);
}

TEST(CreationTest, ValuesMustFillTheShape) {
  EXPECT_THROW(tensor_from(Values{1, 2}, {3}, DType::f32), Error);
}

TEST(EqualTest, ComparesShapeAndElements) {
  EXPECT_TRUE(equal(arange(3), arange(3)));
  EXPECT_TRUE(equal(arange(4).view({2, 2}).transpose(0, 1).clone(),
                    arange(4).view({2, 2}).transpose(0, 1)));
  EXPECT_FALSE(equal(arange(3), arange(3).view({3, 1})));
  EXPECT_FALSE(equal(arange(2), tensor_from(Values{0, 2}, {2}, DType::i64)));
  EXPECT_FALSE(equal(full({1}, NAN), full({1}, NAN)));
  EXPECT_TRUE(equal(full({1}, -0.0), full({1}, 0.0)));
  EXPECT_TRUE(equal(zeros({0, 2}), zeros({0, 2})));
  EXPECT_TRUE(equal(ones({1}), ones({1}, {DType::f64})));
  EXPECT_FALSE(equal(ones({1}), zeros({1}, {DType::boolean})));
}

}  // namespace
}  // namespace dtrun::tensors
