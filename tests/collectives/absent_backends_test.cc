// The backends that a build does without: gloo and mpi where their libraries were not found.
// Compiled into this test whatever this build found, in the place of the library's own.
#include <gtest/gtest.h>

#include "dtrun/collectives/process_group.h"
#include "dtrun/rendezvous/hash_store.h"
#include "make_backend.h"
#include "support/thrown_error.h"

namespace dtrun::collectives {
namespace {

using base::Error;
using base::ErrorCode;
using testing_support::contains;
using testing_support::error_of;

void expect_refusal(const std::function<void()>& make, const std::string& name,
                    const std::string& remedy) {
  const std::optional<Error> error = error_of(make);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
  EXPECT_EQ(error->summary(), "backend '" + name + "' is not built in");
  EXPECT_TRUE(contains(error->remedy(), remedy)) << error->remedy();
}

TEST(AbsentBackendsTest, TheRefusalNamesTheRemedy) {
  expect_refusal([] { make_gloo_backend({}); }, "gloo", "libgloo-dev");
  expect_refusal([] { make_mpi_backend({}); }, "mpi", "libopenmpi-dev");
}

TEST(AbsentBackendsTest, AGroupOfThatBackendIsRefused) {
  for (const char* name : {"gloo", "mpi"}) {
    GroupOptions options;
    options.store = rendezvous::make_hash_store();
    options.global_ranks = {0};
    options.backend = name;
    const std::optional<Error> error = error_of([&] { ProcessGroup::create(options); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
    EXPECT_TRUE(contains(error->remedy(), "backend cpu")) << error->remedy();
  }
}

}  // namespace
}  // namespace dtrun::collectives
