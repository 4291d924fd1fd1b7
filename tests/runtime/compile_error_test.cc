// What cannot be sent to a process does not compile, and the compiler says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/command.h"

namespace dtrun {
namespace {

using testing::HasSubstr;

/// Gives the source to the compiler; what it has said.
testing_support::CommandResult compiled(const std::string& text) {
  std::string folder = testing::TempDir() + "compile_error_XXXXXX";
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string source = folder + "/mistakes.cc";
  std::ofstream(source) << text;
  std::vector<std::string> command = {DTRUN_CXX, "-std=c++20", "-fsyntax-only", source};
  for (const char* layer : {"base", "rendezvous", "tensor", "collectives", "dtensor", "runtime"})
    command.push_back("-I" + std::string(DTRUN_SOURCE_DIR) + "/" + layer + "/include");
  const auto result = testing_support::run_command(command);
  std::filesystem::remove_all(folder);
  return result;
}

TEST(CompileErrorTest, WhatCannotBeSentToAProcessIsNamedInWords) {
  const auto result = compiled(R"(#include "dtrun/runtime/mp.h"
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
)");
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  for (const char* text :
       {"a parameter of this function has a type that cannot be sent", "a reference to non-const",
        "takes another number of arguments", "does not have the type that this function takes",
        "this cannot be called with the arguments"})
    EXPECT_THAT(result.err, HasSubstr(text));
}

TEST(CompileErrorTest, APrintWhoseFormatDoesNotFitItsArgumentsIsNamedInWords) {
  const auto result = compiled(R"(#include "dtrun/runtime/print.h"
using dtrun::runtime::print;
struct Unknown {};
void mistakes(const std::string& text) {
  print("{} {}", 1);           // line 5
  print("{}", 1, 2);           // line 6
  print("{");                  // line 7
  print("{:.2f}", 1);          // line 8
  print("{:>8s}", 0.5);        // line 9
  print("{:q}", 1);            // line 10
  print("{} {0}", 1);          // line 11
  print("{:{}}", 1, 2);        // line 12
  print("{}", Unknown());      // line 13
  print(text, 1);              // line 14
  print("{:3.}", "a");         // line 15
  print("{}");                 // line 16
}
)");
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  for (const char* text :
       {"more_placeholders_than_arguments", "more_arguments_than_placeholders",
        "a_brace_without_its_partner", "numbered_and_unnumbered_placeholders_mixed",
        "the_format_of_a_placeholder_is_not_understood",
        "the_format_of_a_placeholder_does_not_fit_its_argument", "print() does not know this type"})
    EXPECT_THAT(result.err, HasSubstr(text));
  for (int line = 5; line <= 16; ++line)
    EXPECT_THAT(result.err, HasSubstr("mistakes.cc:" + std::to_string(line) + ":"));
}

}  // namespace
}  // namespace dtrun
