#include "dtrun/base/dynamic_library.h"

#include <gtest/gtest.h>

namespace dtrun::base {
namespace {

TEST(DynamicLibraryTest, TheFirstFileThatCanBeOpenedIs) {
  const DynamicLibrary library({"libdtrun-nowhere.so.1", "libm.so.6"});
  ASSERT_TRUE(library.opened());
  EXPECT_NE(library.reason().find("libdtrun-nowhere.so.1"), std::string::npos) << library.reason();
  double (*square_root)(double) = nullptr;
  ASSERT_TRUE(library.find("sqrt", square_root));
  EXPECT_EQ(square_root(9.0), 3.0);
}

TEST(DynamicLibraryTest, ANameThatIsMissingIsNotFound) {
  const DynamicLibrary library({"libm.so.6"});
  ASSERT_TRUE(library.opened()) << library.reason();
  EXPECT_EQ(library.reason(), "");
  EXPECT_EQ(library.find("dtrun_no_such_name"), nullptr);
  void (*function)() = [] {};
  EXPECT_FALSE(library.find("dtrun_no_such_name", function));
  EXPECT_EQ(function, nullptr);
}

TEST(DynamicLibraryTest, WithoutAnyFileTheReasonIsTheFirstFiles) {
  const DynamicLibrary library({"libdtrun-nowhere.so.1", "libdtrun-nowhere.so.2"});
  EXPECT_FALSE(library.opened());
  EXPECT_NE(library.reason().find("libdtrun-nowhere.so.1"), std::string::npos) << library.reason();
}

}  // namespace
}  // namespace dtrun::base
