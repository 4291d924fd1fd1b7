// The program dtrun-ckpt, as its users start it.
#include <gmock/gmock.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>

#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/npy.h"
#include "dtrun/tensor/safetensors.h"
#include "launcher/terminal.h"
#include "support/command.h"

namespace dtrun::dtensor {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::CommandResult;

CommandResult ckpt(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), DTRUN_CKPT_BINARY);
  return testing_support::run_command(arguments);
}

class DtrunCkptTest : public testing::Test {
 protected:
  DtrunCkptTest() {
    std::int64_t step = 7;
    for (const char* name : {"runs/step-1", "runs/step-2"}) {
      dcp::save(path(name), {{"model.w", tensor_from({1, 2, 3, 4, 5, 6}, {3, 2}, DType::f32)},
                             {"model.b", tensor_from({7, 8}, {2}, DType::bf16)},
                             {"step", step}});
      ++step;
    }
  }
  ~DtrunCkptTest() override { fs::remove_all(folder_); }
  static Tensor tensor_from(const std::vector<double>& values, const Shape& shape, DType dtype) {
    return dtensor::tensor_from(values, shape, dtype);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  const std::string folder_ = testing::TempDir() + "ckpt." + std::to_string(::getpid());
};

TEST_F(DtrunCkptTest, SaysWhatIsThere) {
  const CommandResult result = ckpt({"inspect", path("runs/step-1")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("2 tensors, 28 bytes in 1 files, saved by 1 ranks"),
                                HasSubstr("step = 7"), HasSubstr("model.b  bf16[2]"),
                                HasSubstr("model.w  f32[3, 2]")));
  EXPECT_THAT(ckpt({"inspect", path("runs/step-1"), "--only", "*.b", "--json"}).out,
              AllOf(HasSubstr(R"("name":"model.b","dtype":"BF16","shape":[2],"bytes":4)"),
                    Not(HasSubstr("model.w"))));
}

TEST_F(DtrunCkptTest, DrawsWhoHadWhat) {
  ASSERT_EQ(
      ckpt({"reshard", path("runs/step-1"), path("on3"), "--mesh", "3", "--layout", "model.b=[R]"})
          .exit_code,
      0);
  const CommandResult drawn = ckpt({"inspect", path("on3"), "--draw", "model.w"});
  EXPECT_EQ(drawn.exit_code, 0);
  EXPECT_THAT(drawn.out, AllOf(HasSubstr("0:2"), HasSubstr("0"), HasSubstr("2")));
  EXPECT_THAT(ckpt({"inspect", path("runs/step-1"), "--draw", "model.w"}).err,
              HasSubstr("was saved from no mesh"));
  EXPECT_EQ(ckpt({"inspect", path("on3"), "--draw", "model.w", "--json"}).exit_code, 64);
}

TEST_F(DtrunCkptTest, VerifyEndsWithOneWhereSomethingIsDamaged) {
  CommandResult result = ckpt({"verify", path("runs/step-1")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("28 bytes read, all as it was saved"));
  const std::string shard = path("runs/step-1/shard-00001-of-00001.safetensors");
  std::fstream file(shard, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-1, std::ios::end);
  file.put('\xff');
  file.close();
  result = ckpt({"verify", path("runs/step-1")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("is damaged: bytes"), HasSubstr("1 faults")));
  EXPECT_THAT(ckpt({"verify", path("runs/step-1"), "--json"}).out, HasSubstr(R"("faults":[{)"));
  EXPECT_EQ(ckpt({"merge", path("runs/step-1"), path("m.safetensors")}).exit_code, 1);
  EXPECT_FALSE(fs::exists(path("m.safetensors")));
}

TEST_F(DtrunCkptTest, CopiesInOtherFormsAreTheSame) {
  const std::string from = path("runs/step-1");
  const CommandResult merged = ckpt({"merge", from, path("m.safetensors")});
  ASSERT_EQ(merged.exit_code, 0);
  EXPECT_THAT(merged.out,
              HasSubstr("m.safetensors: a .safetensors file, 2 tensors, 28 bytes, written in "));
  EXPECT_EQ(tensors::load_safetensors(path("m.safetensors")).at("model.w").to_vector(),
            (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_THAT(
      ckpt({"split", from, path("hf"), "--max-bytes", "10", "--json"}).out,
      AllOf(HasSubstr(R"(hf","kind":")"), HasSubstr(R"("tensors":2,"bytes":28,"seconds":)")));
  EXPECT_TRUE(fs::exists(path("hf/model-00002-of-00002.safetensors")));
  ASSERT_EQ(ckpt({"convert", path("hf"), path("again")}).exit_code, 0);
  EXPECT_THAT(ckpt({"convert", from, path("w.npy"), "--tensor", "model.w"}).out,
              HasSubstr("w.npy: a .npy file, 1 tensor, 152 bytes, written in "));
  EXPECT_EQ(tensors::load_npy(path("w.npy")).shape(), (Shape{3, 2}));
  ASSERT_EQ(ckpt({"convert", from, path("c.safetensors"), "--only", "*.w"}).exit_code, 0);
  EXPECT_EQ(ckpt({"diff", from, path("again"), "--only", "model.*"}).exit_code, 0);
  const CommandResult differs = ckpt({"diff", from, path("runs/step-2")});
  EXPECT_EQ(differs.exit_code, 1);
  EXPECT_THAT(differs.out, HasSubstr("step: 7 and 8"));
  EXPECT_THAT(ckpt({"diff", from, path("runs/step-2"), "--json"}).out,
              HasSubstr(R"("difference":"7 and 8")"));
}

/// The most memory that dtrun-ckpt, or the test when it starts it, has had at once.
std::int64_t mebibytes_of_ckpt(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), DTRUN_CKPT_BINARY);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execv(argv.front(), argv.data());
    ::_exit(127);
  }
  int status = -1;
  rusage used{};
  EXPECT_EQ(::wait4(child, &status, 0, &used), child);
  EXPECT_EQ(status, 0) << arguments[1];
  return used.ru_maxrss >> 10;
}

TEST_F(DtrunCkptTest, LargeCheckpointsAreCopiedInLittleMemory) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer has memory of its own";
#endif
  // 400 MiB that take no room: a header, and a hole.
  const std::string header =
      R"({"w":{"dtype":"F32","shape":[1024,102400],"data_offsets":[0,419430400]}})";
  const std::string large = path("large.safetensors");
  const std::uint64_t length = header.size();
  std::ofstream(large, std::ios::binary)
      .write(reinterpret_cast<const char*>(&length), sizeof length)
      .write(header.data(), static_cast<std::streamsize>(header.size()));
  fs::resize_file(large, sizeof length + length + 419430400);
  const std::int64_t resharding =
      mebibytes_of_ckpt({"reshard", large, path("on8"), "--mesh", "8", "--layout", "*=[S(0)]"});
  fs::remove(large);
  const std::int64_t merging = mebibytes_of_ckpt({"merge", path("on8"), path("one.safetensors")});
  std::printf("reshard to 8: %ld MiB, merge: %ld MiB\n", static_cast<long>(resharding),
              static_cast<long>(merging));
  EXPECT_EQ(fs::file_size(path("one.safetensors")) >> 20, 400U);
  EXPECT_LE(resharding, 100);
  EXPECT_LE(merging, 60);
}

/// Of "12.5 MB".
double bytes_in(const std::string& number, const std::string& unit) {
  const std::map<std::string, double> units = {
      {"bytes", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
  return std::stod(number) * units.at(unit);
}

TEST_F(DtrunCkptTest, ATerminalShowsHowFarAndHowFastAndHowLongItTakes) {
  constexpr std::int64_t kNumbers = std::int64_t{24} << 20;
  dcp::save(path("large"), {{"x", zeros({kNumbers}, {.dtype = DType::f32})}});
  launcher::Terminal terminal({DTRUN_CKPT_BINARY, "merge", path("large"), path("one.safetensors")});
  const std::string seen = terminal.finish();
  EXPECT_EQ(terminal.status(), 0) << seen;
  const std::regex line(
      "\r\x1b\\[K\\[(#*)(\\.*)\\] ([0-9.]+) (bytes|[kMGT]B) of ([0-9.]+) (bytes|[kMGT]B)  "
      "([0-9.]+) (bytes|[kMGT]B)/s(  ([0-9]+) s left)?");
  double last = -1;
  int lines = 0;
  for (std::sregex_iterator at(seen.begin(), seen.end(), line), end; at != end; ++at, ++lines) {
    const std::smatch& found = *at;
    const double done = bytes_in(found[3], found[4]), all = bytes_in(found[5], found[6]);
    EXPECT_EQ(found[1].length() + found[2].length(), 24);
    EXPECT_NEAR(static_cast<double>(found[1].length()), 24 * done / all, 1.1);
    EXPECT_NEAR(all, 4.0 * kNumbers, 1e5);
    EXPECT_GE(done, last);
    last = done;
    const double rate = bytes_in(found[7], found[8]);
    EXPECT_EQ(found[9].matched, rate > 0);
    if (rate > 0) {
      EXPECT_NEAR(std::stod(found[10]), (all - done) / rate, 0.6 + 0.1 * (all - done) / rate);
    }
  }
  // The first and the last at least; then the line is wiped.
  EXPECT_GE(lines, 2) << seen;
  EXPECT_NEAR(last, 4.0 * kNumbers, 1e5);
  EXPECT_NE(seen.rfind("\r\x1b[K"), seen.rfind("\r\x1b[K[")) << seen;
  // Into a pipe nothing of it is written.
  const CommandResult piped = ckpt({"merge", path("large"), path("two.safetensors")});
  EXPECT_EQ(piped.exit_code, 0);
  EXPECT_EQ(piped.err, "");
}

TEST_F(DtrunCkptTest, PruneTellsWhatItRemoves) {
  EXPECT_THAT(ckpt({"prune", path("runs"), "--keep", "1", "--dry-run"}).out,
              HasSubstr("would remove " + path("runs/step-1")));
  EXPECT_TRUE(fs::exists(path("runs/step-1")));
  EXPECT_THAT(ckpt({"prune", path("runs"), "--keep", "1", "--json"}).out, HasSubstr("step-1"));
  EXPECT_FALSE(fs::exists(path("runs/step-1")));
  EXPECT_TRUE(fs::exists(path("runs/step-2")));
  // A killed merge leaves a file, which is in nobody's way.
  std::ofstream(path("runs/.model.safetensors.0123456789abcdef.partial")) << "half";
  const CommandResult again = ckpt({"prune", path("runs"), "--keep", "1"});
  EXPECT_EQ(again.exit_code, 0) << again.describe();
}

TEST_F(DtrunCkptTest, ACutFileIsDamageAndNamesAreShownWithoutControls) {
  const std::string file = path("runs/x.safetensors");
  tensors::save_safetensors(file, {{{"a\x1b[2Jb", tensors::zeros({2})}}, {}});
  const CommandResult shown = ckpt({"inspect", file});
  EXPECT_EQ(shown.exit_code, 0) << shown.describe();
  EXPECT_THAT(shown.out, AllOf(HasSubstr("a\\x1b[2Jb"), Not(HasSubstr("\x1b"))));
  fs::resize_file(file, fs::file_size(file) - 1);
  const CommandResult cut = ckpt({"verify", file});
  EXPECT_EQ(cut.exit_code, 1) << cut.describe();
}

TEST_F(DtrunCkptTest, WhatMakesNoSenseIsNamedWithTheRemedy) {
  const std::string from = path("runs/step-1");
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{}, "subcommand is required"},
      {{"frobnicate", from}, "there is no command 'frobnicate'"},
      {{"merge", from}, "merge: TARGET is required"},
      {{"inspect", path("none")}, "is not there"},
      {{"inspect", path("runs")}, "name one of them: " + path("runs/step-")},
      {{"merge", from, from}, "is there already"},
      {{"reshard", from, path("x")}, "reshard: --mesh is required"},
      {{"reshard", from, path("x"), "--mesh", "2", "--layout", "R"}, "PATTERN=LAYOUT"},
      {{"reshard", from, path("x"), "--mesh", "2", "--layout", "*=Q"}, "'Q' is no layout"},
      {{"convert", from, path("x.npy")}, "--tensor NAME"},
      {{"prune", path("runs"), "--keep", "0"}, "--keep"}};
  for (const auto& [arguments, words] : wrong) {
    const CommandResult result = ckpt(arguments);
    EXPECT_EQ(result.exit_code, 64) << result.describe();
    EXPECT_THAT(result.err, HasSubstr(words));
  }
}

}  // namespace
}  // namespace dtrun::dtensor
