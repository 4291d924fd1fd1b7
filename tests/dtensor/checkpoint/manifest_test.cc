// manifest.json: written and read again, and every way to make a wrong one refused.
#include "dtrun/dtensor/checkpoint/manifest.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/block_sums.h"
#include "dtensor/refusal.h"

namespace dtrun::dtensor::dcp {
namespace {

using tensors::DType;

Manifest some_manifest() {
  Manifest manifest;
  manifest.generation = 0xfedcba9876543210;
  manifest.ranks = 2;
  manifest.files = {{"shard-00001-of-00002.safetensors", 4000, 100, 1},
                    {"shard-00002-of-00002.safetensors", 4000, 100, 2}};
  manifest.tensors = {{"a",
                       DType::f32,
                       {4, 2},
                       {2},
                       "[S(0)]",
                       {{{{0, 0}, {2, 2}}, 0, 100, {5}}, {{{2, 0}, {2, 2}}, 1, 100, {6}}}},
                      {"b", DType::bf16, {}, {}, "", {{{{}, {}}, 0, 116, {~std::uint64_t{0}}}}},
                      {"c", DType::boolean, {0, 3}, {}, "", {}}};
  manifest.values = {{"rate", 0.1}, {"step", std::int64_t{7}}, {"on", true}, {"text", "\"\n"}};
  manifest.rank_values = {{"seed", {std::int64_t{1}, std::int64_t{2}}}};
  return manifest;
}

TEST(ManifestTest, IsReadAsItWasWritten) {
  const Manifest wrote = some_manifest();
  const std::string text = manifest_text(wrote);
  const Manifest read = parse_manifest(text, "m");
  EXPECT_EQ(manifest_text(read), text);
  EXPECT_EQ(read.generation, wrote.generation);
  EXPECT_EQ(read.values, wrote.values);
  EXPECT_EQ(read.rank_values, wrote.rank_values);
  ASSERT_NE(read.find("a"), nullptr);
  EXPECT_EQ(read.find("a")->chunks[1].box, (Box{{2, 0}, {2, 2}}));
  EXPECT_EQ(read.find("a")->layout, "[S(0)]");
  EXPECT_EQ(read.find("b")->chunks[0].checksums[0], ~std::uint64_t{0});
  EXPECT_EQ(read.find("aa"), nullptr);
  EXPECT_EQ(manifest_text(parse_manifest(manifest_text({}), "m")), manifest_text({}));
}

TEST(ManifestTest, DoublesComeBackBitByBit) {
  Manifest manifest;
  const double numbers[] = {0.1, -0.0, 5e-324, 1.7976931348623157e308,
                            std::numeric_limits<double>::infinity()};
  for (const double number : numbers) manifest.values[fmt::format("{:a}", number)] = number;
  EXPECT_EQ(parse_manifest(manifest_text(manifest), "m").values, manifest.values);
}

TEST(ManifestTest, ChecksumsAreXxh3AndOfBlocks) {
  EXPECT_EQ(checksum(""), 0x2d06800538d394c2);  // xxHash's own test vector
  std::string bytes;
  for (std::size_t i = 0; i < 2 * kBlockBytes + 5; ++i) bytes += static_cast<char>(i * 7 + i / 300);
  for (const std::size_t piece : {1000003UL, 1UL << 20, 77777UL, bytes.size()}) {
    BlockSums sums;
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      sums.add(std::string_view(bytes).substr(at, piece));
    const std::vector<std::uint64_t> found = sums.take();
    ASSERT_EQ(found.size(), blocks_of(bytes.size()));
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(found[i], checksum(std::string_view(bytes).substr(i * kBlockBytes, kBlockBytes)));
    EXPECT_TRUE(sums.take().empty());
  }
}

TEST(ManifestTest, PatternsFitNames) {
  EXPECT_TRUE(is_chosen("a.b", {}));
  EXPECT_TRUE(is_chosen("a.b", {"x", "a.*"}));
  EXPECT_FALSE(is_chosen("a.b", {"a", "b"}));
}

/// With a last line that fits.
std::string sealed(const std::string& text) {
  return text + fmt::format(",\n\"checksum\":\"{:016x}\"}}\n", checksum(text));
}

struct Wrong {
  const char* from;
  const char* to;
  const char* why;
};

// Each replaces a part of a right one, and has a right checksum.
const Wrong kWrong[] = {
    {"\"format\":\"dtrun-checkpoint\"", "\"format\":\"zip\"", "its format is \"zip\""},
    {"\"format\":\"dtrun-checkpoint\"", "\"format\":7", "\"format\" is no text"},
    {"\"format\":", "\"shape\":", "\"format\" is missing"},
    {"\"version\":1", "\"version\":2", "of version 2"},
    {"\"version\":1", "\"version\":-1", "\"version\" is -1"},
    {"\"version\":1", "\"version\":1.5", "\"version\" is 1.5"},
    {"\"version\":1,", "", "\"version\" is missing"},
    {"\"version\":1", "\"version\":1,\"version\":1", "stands twice"},
    {"\"block_bytes\":1048576", "\"block_bytes\":1", "another size"},
    {"\"generation\":\"fedc", "\"generation\":\"fedx", "\"generation\" has"},
    {"\"generation\":\"fedc", "\"generation\":\"fed", "\"generation\" has"},
    {"\"generation\":\"fedcba9876543210\"", "\"generation\":5", "\"generation\" has 5"},
    {"\"ranks\":2", "\"ranks\":0", "0 ranks"},
    {"\"ranks\":2", "\"ranks\":99999999999", "99999999999 ranks"},
    {"\"ranks\":2", "\"ranks\":3", "not one value per rank"},
    {"\"seed\":[1,2]", "\"seed\":[1]", "not one value per rank"},
    {"\"seed\":[1,2]", "\"seed\":7", "not one value per rank"},
    {"\"seed\":[1,2]", "\"seed\":[1,null]", "the value \"seed\" is null"},
    {"\"values\":{", "\"values\":[],\"other\":{", "\"values\" is no object"},
    {"\"step\":7", "\"step\":7.5", "the value \"step\" is"},
    {"\"step\":7", "\"step\":[]", "the value \"step\" is"},
    {"\"step\":7", "\"step\":{\"double\":\"x\"}", "the value \"step\" is"},
    {"\"step\":7", "\"step\":{\"double\":\"\"}", "the value \"step\" is"},
    {"\"step\":7", "\"step\":{\"float\":\"1\"}", "\"double\" is missing"},
    {"\"step\":7", "\"on\":7", "stands twice"},
    {"\"files\":[", "\"files\":[7,", "a file is no object"},
    {"\"files\":[", "\"files\":{},\"f\":[", "\"files\" is no list"},
    {"\"name\":\"shard-00001-of-00002.safetensors\"", "\"name\":\"../secret\"",
     "not in its folder"},
    {"\"name\":\"shard-00001-of-00002.safetensors\"", "\"name\":\"/etc/passwd\"",
     "not in its folder"},
    {"\"name\":\"shard-00001-of-00002.safetensors\"", "\"name\":\"a/b\"", "not in its folder"},
    {"\"name\":\"shard-00001-of-00002.safetensors\"", "\"name\":\"..\"", "not in its folder"},
    {"\"name\":\"shard-00001-of-00002.safetensors\"", "\"name\":\".\"", "not in its folder"},
    {"\"name\":\"shard-00001-of-00002.safetensors\"", "\"name\":\"\"", "not in its folder"},
    {"\"name\":\"shard-00001-of-00002.safetensors\"", "\"name\":\".hidden\"", "not in its folder"},
    {"\"name\":\"shard-00001-of-00002.safetensors\"", "\"name\":\"a\\u0000b\"",
     "not in its folder"},
    {"\"name\":\"shard-00001-of-00002.safetensors\"", "\"name\":\"a\\\\b\"", "not in its folder"},
    {"\"name\":\"shard-00001-of-00002.safetensors\"", "\"name\":\"a\\nb\"", "not in its folder"},
    {"\"name\":\"shard-00001-of-00002.safetensors\"", "\"name\":\"manifest.json\"", "stands twice"},
    {"\"name\":\"shard-00001-of-00002.safetensors\"",
     "\"name\":\"shard-00002-of-00002.safetensors\"", "stands twice"},
    {"\"name\":\"shard-00001-of-00002.safetensors\"", "\"name\":5", "\"name\" is no text"},
    {"\"bytes\":4000", "\"bytes\":99", "larger than the file"},
    {"\"bytes\":4000", "\"bytes\":-4000", "\"bytes\" is -4000"},
    {"\"bytes\":4000", "\"bytes\":18446744073709551615", "\"bytes\" is"},
    {"\"bytes\":4000", "\"bytes\":1e3", "\"bytes\" is"},
    {"\"bytes\":4000", "\"bytes\":101", "not within"},
    {"\"header_bytes\":100", "\"header_bytes\":7", "larger than the file"},
    {"\"header_bytes\":100", "\"header_bytes\":101", "not within"},
    {"\"header_checksum\":\"0000000000000001\"", "\"header_checksum\":\"1\"",
     "\"header_checksum\" has"},
    {"\"dtype\":\"F32\"", "\"dtype\":\"F8_E4M3\"", "no dtype \"F8_E4M3\""},
    {"\"dtype\":\"F32\"", "\"dtype\":\"F64\"", "share bytes"},
    {"\"shape\":[4,2]", "\"shape\":[4,3]", "lack 4 of its elements"},
    {"\"shape\":[4,2]", "\"shape\":[3,2]", "outside of [3, 2]"},
    {"\"shape\":[4,2]", "\"shape\":[8]", "another number of dims"},
    {"\"shape\":[4,2]", "\"shape\":[4,-2]", "\"shape\" is -2"},
    {"\"shape\":[4,2]", "\"shape\":4", "\"shape\" is no list"},
    {"\"shape\":[4,2]", "\"shape\":[9223372036854775807,2]", "larger than any memory"},
    {"\"shape\":[4,2]", "\"shape\":[4611686018427387904,4611686018427387904]",
     "larger than any memory"},
    {"\"offsets\":[2,0]", "\"offsets\":[1,0]", "overlap"},
    {"\"offsets\":[2,0]", "\"offsets\":[9223372036854775807,0]", "outside of"},
    {"\"offsets\":[2,0]", "\"offsets\":[2]", "another number of dims"},
    {"\"offsets\":[2,0]", "\"offsets\":[-2,0]", "\"offsets\" is -2"},
    {"\"offsets\":[2,0],\"shape\":[2,2]", "\"offsets\":[2,0],\"shape\":[1,2]", "lack 2"},
    {"\"offsets\":[2,0],\"shape\":[2,2]", "\"offsets\":[2,0],\"shape\":[0,2]",
     "1 checksums, not 0"},
    {"\"file\":1", "\"file\":2", "is in no file"},
    {"\"file\":1", "\"file\":0", "share bytes"},
    {"\"begin\":116", "\"begin\":99", "not within"},
    {"\"begin\":116", "\"begin\":3999", "not within"},
    {"\"begin\":116", "\"begin\":9223372036854775807", "not within"},
    {"\"begin\":116", "\"begin\":115", "share bytes"},
    {"\"checksums\":[\"0000000000000005\"]", "\"checksums\":[]", "0 checksums, not 1"},
    {"\"checksums\":[\"0000000000000005\"]",
     "\"checksums\":[\"0000000000000005\",\"0000000000000005\"]", "2 checksums, not 1"},
    {"\"checksums\":[\"0000000000000005\"]", "\"checksums\":[\"000000000000000g\"]",
     "\"checksums\" has"},
    {"\"mesh\":[2]", "\"mesh\":[0]", "no such mesh"},
    {"\"mesh\":[2]", "\"mesh\":[99999999999]", "no such mesh"},
    {",\"layout\":\"[S(0)]\"", "", "\"layout\" is missing"},
    {"{\"name\":\"b\"", "{\"name\":\"a\"", "not in the order"},
    {"{\"name\":\"c\"", "{\"name\":\"B\"", "not in the order"},
    {"\"tensors\":[", "\"tensors\":[[],", "a tensor is no object"},
    {"\"tensors\":[", "\"tensors\":[", nullptr},  // the right one
};

TEST(ManifestTest, EveryWrongOneIsRefusedByName) {
  const std::string right = manifest_text(some_manifest());
  const std::string body = right.substr(0, right.size() - 33);
  int refused = 0;
  for (const Wrong& wrong : kWrong) {
    SCOPED_TRACE(wrong.to);
    std::string text = body;
    const std::size_t at = text.find(wrong.from);
    ASSERT_NE(at, std::string::npos) << wrong.from;
    text.replace(at, std::string(wrong.from).size(), wrong.to);
    if (wrong.why == nullptr) {
      EXPECT_NO_THROW(parse_manifest(sealed(text), "m.json"));
      continue;
    }
    expect_refused([&] { parse_manifest(sealed(text), "m.json"); }, wrong.why,
                   base::ErrorCode::kProtocol);
    ++refused;
  }
  EXPECT_GE(refused, 60);
}

TEST(ManifestTest, WhatIsNoManifestIsRefused) {
  const auto expect = [](const std::string& text, const char* why) {
    expect_refused([&] { parse_manifest(text, "m.json"); }, why, base::ErrorCode::kProtocol);
  };
  expect("", "it has 0 bytes");
  expect(std::string(40, 'x'), "its last line is not the checksum");
  expect(sealed("{\"a\""), "is not valid JSON");
  expect(sealed("[1"), "is not valid JSON");
  const std::string right = manifest_text(some_manifest());
  for (std::size_t i = 0; i < right.size(); ++i) {
    std::string damaged = right;
    damaged[i] ^= 0x10;
    expect(damaged, "its last line is not the checksum");
  }
  expect(right + "\n", "its last line");
  expect(right.substr(1), "its last line");
}

}  // namespace
}  // namespace dtrun::dtensor::dcp
