// What DTRUN_CPU_CAPABILITY means on each processor. tests.cmake runs the kernels' tests with it.
#include "kernels/vector_registers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtrun/base/error.h"

namespace dtrun::tensors {
namespace {

using testing::HasSubstr;

std::string error_of_registers(std::string_view word, VectorRegisters widest) {
  try {
    registers_named(word, widest);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ErrorCode::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(VectorRegistersTest, AWordAsksForAsManyAsThereAreOrFewer) {
  const VectorRegisters sse2 = VectorRegisters::sse2, avx2 = VectorRegisters::avx2,
                        avx512 = VectorRegisters::avx512;
  for (const VectorRegisters widest : {sse2, avx2, avx512})
    EXPECT_EQ(registers_named("default", widest), sse2);
  for (const VectorRegisters widest : {avx2, avx512})
    EXPECT_EQ(registers_named("avx2", widest), avx2);
  EXPECT_EQ(registers_named("avx512", avx512), avx512);
}

TEST(VectorRegistersTest, MoreThanTheProcessorHasIsAnError) {
  const std::string text = error_of_registers("avx512", VectorRegisters::avx2);
  EXPECT_THAT(text, HasSubstr("DTRUN_CPU_CAPABILITY=avx512, but this processor has no avx512"));
  EXPECT_THAT(text, HasSubstr("the most that it has is avx2"));
  EXPECT_THAT(error_of_registers("avx2", VectorRegisters::sse2),
              HasSubstr("try: DTRUN_CPU_CAPABILITY=default"));
}

TEST(VectorRegistersTest, AnUnknownWordIsAnError) {
  for (const char* word : {"", "AVX2", "avx", "sse2", "avx512 "}) {
    EXPECT_THAT(error_of_registers(word, VectorRegisters::avx512),
                HasSubstr(std::string("DTRUN_CPU_CAPABILITY=") + word + " is no set of vector"));
  }
}

}  // namespace
}  // namespace dtrun::tensors
