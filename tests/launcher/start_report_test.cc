// What --report-bindings and --timing tell of a start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtrun/base/json.h"
#include "launcher/launcher_job.h"
#include "preview/binding_report.h"
#include "ranks/timing.h"
#include "support/thrown_error.h"

namespace dtrun::launcher {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(BindingReport, HasARowForEachRank) {
  LaunchPlan plan;
  plan.bindings = {{.cpus = {0, 1, 8}, .memory_node = 1}, {}};
  plan.programs[0].command.environment = {"CUDA_VISIBLE_DEVICES=5,GPU-7", "OMP_NUM_THREADS=4"};
  EXPECT_EQ(binding_report(plan, {.cpus = {0, 1, 2}, .devices = 2}),
            "local rank  CPUs             memory        GPU    OMP_NUM_THREADS\n"
            "0           0-1,8            node 1 first  5      4\n"
            "1           0-2 (not bound)  any           GPU-7  4\n");
}

TEST(BindingReport, TellsWhatIsNotThereAndWhatIsEachRanksOwn) {
  LaunchPlan plan;
  plan.bindings = {{}, {}};
  EXPECT_THAT(binding_report(plan, {.cpus = {0}, .devices = 1}),
              HasSubstr("1           0 (not bound)  any     -    -\n"));
  plan.omp_shares = {2, 3};
  plan.virtual_devices = {"6", "4"};
  EXPECT_THAT(binding_report(plan, {.cpus = {0}, .devices = 0}),
              HasSubstr("1           0 (not bound)  any     4    3\n"));
}

TEST(Timing, TellsEachStepAndWhatItDidNotComeTo) {
  Timing timing{.exec_cpu = 500'000, .main = 10'000'000, .options_read = 11'000'000};
  EXPECT_THAT(timing_text(timing, 3),
              HasSubstr("timing of 3 local ranks, ms: took, over after\n"
                        "       0.500      0.000  exec and libraries, CPU time before main\n"
                        "       1.000      1.000  options read\n"
                        "           -          -  plan made\n"));
  EXPECT_THAT(timing_json(timing, 3),
              HasSubstr(R"({"local_ranks":3,"exec_ms":0.500,"parse_ms":1.000,"plan_ms":null,)"));
}

TEST(Timing, TheStoresClientsAreCountedInTheFirstRound) {
  StoreArrivals arrivals;
  arrivals.begin_round(2);
  arrivals.add(5);
  EXPECT_EQ(arrivals.first(), 5);
  EXPECT_EQ(arrivals.all(), 0);
  arrivals.add(7);
  arrivals.add(8);
  arrivals.begin_round(4);
  arrivals.add(9);
  EXPECT_EQ(arrivals.first(), 5);
  EXPECT_EQ(arrivals.all(), 7);
}

TEST(StartReport, OfARealJobIsOnStandardError) {
  // A client of the store: VALIDATE, then PING, which is answered.
  const auto result = run_dtrun(
      {"--timing=json", "--report-bindings", "--nproc_per_node=2", "bash", "-c",
       R"(exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT; printf '\x00\xce\xf7\x85\x3c\x0d1234' >&3; )"
       "head -c 4 <&3 >/dev/null"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("\n1  ")) << result.describe();
  const auto begin = result.err.find("{\"local_ranks\"");
  ASSERT_NE(begin, std::string::npos) << result.describe();
  const auto timing = base::parse_json(result.err.substr(begin), "--timing=json").as_object();
  for (const auto& [name, value] : timing)
    EXPECT_TRUE(name == "local_ranks" || value.as_double() >= 0) << result.describe();
  EXPECT_EQ(timing.size(), 13u);
  EXPECT_LE(timing.at("store_first_ms").as_double(), timing.at("store_all_ms").as_double());
  // Another job's end comes without it.
  EXPECT_THAT(run_dtrun({"--timing=json", "true"}).err, HasSubstr("\"store_first_ms\":null"));
}

TEST(StartReport, TimingIsTextUnlessJsonIsAskedFor) {
  EXPECT_THAT(run_dtrun({"--timing", "true"}).err, HasSubstr("last rank runs"));
  EXPECT_THAT(run_dtrun({"true"}).err, Not(HasSubstr("timing")));
  const auto wrong = run_dtrun({"--timing=xml", "true"});
  EXPECT_EQ(wrong.exit_code, 64);
  EXPECT_THAT(wrong.err, HasSubstr("--timing=xml must be text or json"));
}

}  // namespace
}  // namespace dtrun::launcher
