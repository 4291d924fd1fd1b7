// Whose ranks present the token of their store, by the program's file, which may be anything.
#include "plan/program_file.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "dtrun/rendezvous/program_note.h"
#include "launcher/launcher_job.h"
#include "launcher/plan_here.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

const std::string kHello = DTRUN_WORKERS "/hello";

// The smallest that shows it.
struct Program {
  static const std::size_t kSize;  // without what the compiler adds
  Elf64_Ehdr header{};
  Elf64_Phdr segment{};
  Elf64_Nhdr other{.n_namesz = 4, .n_descsz = 6, .n_type = 1};
  char other_text[12] = "GNU\0[six.]";
  rendezvous::ProgramNote note = rendezvous::kPresentsStoreToken;

  Program() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_phoff = offsetof(Program, segment);
    header.e_phentsize = sizeof segment;
    header.e_phnum = 1;
    segment.p_type = PT_NOTE;
    segment.p_offset = offsetof(Program, other);
    segment.p_filesz = kSize - offsetof(Program, other);
    segment.p_align = 4;
  }
  std::string bytes() const { return {reinterpret_cast<const char*>(this), kSize}; }
};
const std::size_t Program::kSize = offsetof(Program, note) + sizeof(Program::note);

class ProgramFileTest : public testing::Test {
 protected:
  bool presents(const std::string& bytes) const {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << bytes;
    return presents_store_token(file_);
  }
  bool presents(const Program& program) const { return presents(program.bytes()); }
  // What the ranks' store of such a line asks for.
  static bool asks(std::vector<std::string> words, bool with_token = true) {
    base::Environment environment;
    environment.set("PATH", "/usr/bin:/bin");
    if (with_token) environment.set("DTRUN_TOKEN", "a-token-of-this-test");
    words.insert(words.begin(), {"--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint=h:1"});
    return !plan_here(words, environment).store_token.empty();
  }

  LauncherJob job_;
  const std::string file_ = job_.folder() + "/program";
};

TEST_F(ProgramFileTest, OnlyAProgramWithTheRuntimeInItPresentsTheToken) {
  EXPECT_TRUE(presents_store_token(kHello));
  const auto stripped = testing_support::run_command({"strip", "-o", file_, kHello});
  ASSERT_EQ(stripped.exit_code, 0) << stripped.describe();
  EXPECT_TRUE(presents_store_token(file_));
  // It speaks to stores, too, but by itself.
  EXPECT_FALSE(presents_store_token(DTRUN_WORKERS "/elastic_worker"));
  EXPECT_FALSE(presents_store_token(DTRUN_BINARY));
  EXPECT_FALSE(presents_store_token("/usr/bin/env"));
  EXPECT_FALSE(presents("#!/bin/sh\nexec " + kHello + "\n"));
}

TEST_F(ProgramFileTest, WhatCannotBeReadPresentsNone) {
  EXPECT_FALSE(presents_store_token(job_.folder() + "/none"));
  EXPECT_FALSE(presents_store_token(job_.folder()));
  ASSERT_EQ(::mkfifo((job_.folder() + "/fifo").c_str(), 0700), 0);
  EXPECT_FALSE(presents_store_token(job_.folder() + "/fifo"));
}

TEST_F(ProgramFileTest, AFileThatIsCutOffOrLiesIsNoMoreThanWithoutTheNote) {
  EXPECT_TRUE(presents(Program()));
  const std::string whole = Program().bytes();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(presents(whole.substr(0, size))) << size;
  // Whatever it is taken for: it is read in its bounds, which the sanitizers see.
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (const char byte : {'\0', '\x01', '\x7f', '\x80', '\xff'}) {
      std::string changed = whole;
      changed[i] = byte;
      presents(changed);
    }
  constexpr std::uint64_t kHuge[] = {1U << 31, std::uint64_t{1} << 63, ~std::uint64_t{0}};
  for (const std::uint64_t huge : kHuge) {
    Program lie;
    lie.header.e_phoff = huge;
    EXPECT_FALSE(presents(lie));
    lie = {};
    lie.segment.p_offset = huge;
    EXPECT_FALSE(presents(lie));
    lie = {};
    lie.segment.p_filesz = huge;
    EXPECT_FALSE(presents(lie));
    lie = {};
    lie.other.n_namesz = static_cast<std::uint32_t>(huge) | 1U << 31;
    EXPECT_FALSE(presents(lie));
    lie = {};
    lie.other.n_descsz = static_cast<std::uint32_t>(huge) | 1U << 31;
    EXPECT_FALSE(presents(lie));
  }
  Program lie;
  lie.header.e_phnum = 0xffff;
  EXPECT_FALSE(presents(lie));
}

TEST_F(ProgramFileTest, TheStoreAsksTheRanksOfSuchAProgramUnlessTheUserSaysOtherwise) {
  std::ofstream(file_) << "#!/bin/sh\n";
  ::chmod(file_.c_str(), 0700);
  EXPECT_TRUE(asks({kHello}));
  EXPECT_TRUE(asks({kHello, "data.python"}));
  for (const std::vector<std::string>& program : {std::vector<std::string>{"env", kHello},
                                                  {"sh", "-c", kHello},
                                                  {file_},
                                                  {"python3", "a.py"}})
    EXPECT_FALSE(asks(program)) << program[0];
  EXPECT_FALSE(asks({"--rdzv_conf=store_token=false", kHello}));
  EXPECT_TRUE(asks({"--rdzv_conf=store_token=true", "env", kHello}));
  EXPECT_FALSE(asks({"--rdzv_conf=token=none", kHello}, false));
  const auto error = testing_support::error_of([] {
    asks({"--rdzv_conf=token=none,store_token=true", kHello}, false);
  });
  ASSERT_TRUE(error);
  EXPECT_TRUE(testing_support::contains(error->what(), "the agents have no token"))
      << error->what();
}

}  // namespace
}  // namespace dtrun::launcher
