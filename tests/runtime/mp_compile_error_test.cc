// What cannot be sent to a process does not compile, and the compiler says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/command.h"

namespace dtrun::mp {
namespace {

using testing::HasSubstr;

TEST(MpCompileErrorTest, EachMistakeIsNamedInWords) {
  std::string folder = testing::TempDir() + "mp_compile_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string source = folder + "/mistakes.cc";
  std::ofstream(source) << R"(#include "dtrun/runtime/mp.h"
using namespace dtrun;
void takes_pointer(int, int*) {}
void takes_reference(int, std::string&) {}
void takes_text(int, std::string) {}
void takes_int(int, int) {}
void mistakes(int* pointer) {
  mp::spawn(takes_pointer, mp::args(pointer));
  mp::spawn(takes_reference, mp::args("a"));
  mp::spawn(takes_text, mp::args("a", "b"));
  mp::spawn(takes_text, mp::args(1));
  mp::spawn(takes_int, mp::args(0.5));
  mp::spawn([](int, std::string) {}, mp::args(1));
}
)";
  std::vector<std::string> command = {DTRUN_CXX, "-std=c++20", "-fsyntax-only", source};
  for (const char* layer : {"base", "rendezvous", "tensor", "collectives", "dtensor", "runtime"})
    command.push_back("-I" + std::string(DTRUN_SOURCE_DIR) + "/" + layer + "/include");
  const auto result = testing_support::run_command(command);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  for (const char* text :
       {"a parameter of this function has a type that cannot be sent", "a reference to non-const",
        "takes another number of arguments", "does not have the type that this function takes",
        "this cannot be called with the arguments"})
    EXPECT_THAT(result.err, HasSubstr(text));
}

}  // namespace
}  // namespace dtrun::mp
