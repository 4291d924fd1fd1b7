#include "dtrun/collectives/fingerprint.h"

#include <gtest/gtest.h>

#include <string>

#include "dtrun/base/error.h"

namespace dtrun::collectives {
namespace {

Fingerprint all_reduce_41() {
  Fingerprint fingerprint;
  fingerprint.sequence = 41;
  fingerprint.kind = OpKind::all_reduce;
  fingerprint.dtype = tensors::DType::f32;
  fingerprint.counts = 1024;
  return fingerprint;
}

TEST(FingerprintTest, EveryFieldButTheSiteCounts) {
  const Fingerprint base = all_reduce_41();
  EXPECT_TRUE(base.agrees_with(all_reduce_41()));
  Fingerprint other = base;
  set_site(other, base::CallSite::current());
  EXPECT_TRUE(base.agrees_with(other));
  const auto differs = [&](auto change) {
    Fingerprint changed = base;
    change(changed);
    return !base.agrees_with(changed) && !changed.agrees_with(base);
  };
  EXPECT_TRUE(differs([](Fingerprint& f) { f.sequence = 42; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.kind = OpKind::reduce; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.dtype = tensors::DType::f64; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.reduce_op = ReduceOp::max; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.root = 0; }));
  EXPECT_TRUE(differs([](Fingerprint& f) { f.counts = 0; }));
}

TEST(FingerprintTest, TheDescriptionSaysWhatWasCalledWhere) {
  Fingerprint fingerprint = all_reduce_41();
  EXPECT_EQ(fingerprint.describe(), "all_reduce #41 (f32 x 1024, sum)");
  fingerprint.kind = OpKind::broadcast;
  fingerprint.root = 2;
  set_site(fingerprint, base::CallSite::current());
  EXPECT_EQ(fingerprint.describe(), "broadcast #41 (f32 x 1024, root 2) at fingerprint_test.cc:" +
                                        std::to_string(__LINE__ - 2));
  fingerprint.kind = OpKind::barrier;
  fingerprint.site[0] = '\0';
  EXPECT_EQ(fingerprint.describe(), "barrier #41");
}

TEST(FingerprintTest, ALongFileNameKeepsItsEndAndItsLine) {
  Fingerprint fingerprint;
#line 77 "somewhere/a_file_name_that_is_much_longer_than_the_forty_bytes_there_are.cc"
  set_site(fingerprint, base::CallSite::current());
  const std::string site = fingerprint.site;
  EXPECT_TRUE(site.ends_with("bytes_there_are.cc:77")) << site;
}

TEST(ReduceOpTest, NamesGoBothWays) {
  for (const ReduceOp op :
       {ReduceOp::sum, ReduceOp::avg, ReduceOp::product, ReduceOp::min, ReduceOp::max,
        ReduceOp::band, ReduceOp::bor, ReduceOp::bxor, ReduceOp::premul_sum})
    EXPECT_EQ(parse_reduce_op(reduce_op_name(op)), op);
  EXPECT_THROW(parse_reduce_op("mean"), base::Error);
}

TEST(ReduceOpTest, BitsAreForIntegersFactorsForFloatsAndTruthValuesHaveNoMean) {
  EXPECT_FALSE(reduce_op_supports(ReduceOp::premul_sum, tensors::DType::i64));
  EXPECT_TRUE(reduce_op_supports(ReduceOp::premul_sum, tensors::DType::bf16));
  EXPECT_FALSE(reduce_op_supports(ReduceOp::bxor, tensors::DType::f16));
  EXPECT_TRUE(reduce_op_supports(ReduceOp::bxor, tensors::DType::boolean));
  EXPECT_FALSE(reduce_op_supports(ReduceOp::avg, tensors::DType::boolean));
  EXPECT_TRUE(reduce_op_supports(ReduceOp::avg, tensors::DType::i32));
}

}  // namespace
}  // namespace dtrun::collectives
