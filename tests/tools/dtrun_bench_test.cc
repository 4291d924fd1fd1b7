// The program dtrun-bench, as its users start it: real ranks under the real dtrun.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <array>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "bench/copy_bound.h"
#include "bench/measurement.h"
#include "bench/plot.h"
#include "bench/report.h"
#include "bench/way_limits.h"
#include "dtrun/base/json.h"
#include "dtrun/collectives/available_backends.h"
#include "support/command.h"

namespace dtrun::bench {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing_support::CommandResult;
using Words = std::vector<std::string>;

class DtrunBenchTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "dtrun_bench.XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string content(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static CommandResult run(int ranks, const std::string& program, const Words& arguments) {
    Words words = {DTRUN_BINARY, "--nproc_per_node=" + std::to_string(ranks), program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    // dtrun-bench is not in PATH: dtrun finds it in its own folder.
    return testing_support::run_command(words, {.environment = {{"PATH", "/usr/bin:/bin"}}});
  }
  static CommandResult bench(int ranks, const Words& arguments) {
    return run(ranks, "dtrun-bench", arguments);
  }
  boost::json::array rows(const std::string& file) const {
    return base::read_json_file(path(file)).as_object().at("rows").as_array();
  }
  static std::int64_t number(const boost::json::value& row, const char* key) {
    return row.as_object().at(key).to_number<std::int64_t>();
  }

  std::string folder_;
};

TEST_F(DtrunBenchTest, EveryOperationIsMeasuredAndRight) {
  const CommandResult result = bench(3, {"collectives", "-n", "2", "-w", "1", "-e", "64K", "-f",
                                         "64", "--root", "2", "--json", path("all.json")});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("# wrong elements: 0\n"));
  std::map<std::string, int> seen;
  for (const boost::json::value& row : rows("all.json")) {
    EXPECT_EQ(number(row, "wrong"), 0) << row;
    EXPECT_GT(row.at("p50_us").to_number<double>(), 0) << row;
    EXPECT_LE(row.at("p50_us").to_number<double>(), row.at("p99_us").to_number<double>()) << row;
    ++seen[std::string(row.at("operation").as_string())];
  }
  EXPECT_EQ(seen.size(), all_operations().size());
  EXPECT_EQ(seen["barrier"], 1);
  EXPECT_EQ(seen["all_to_all"], 3);  // 8 B are one element for each, 12 B
  for (const Operation operation : all_operations())
    EXPECT_THAT(result.out, HasSubstr("# " + std::string(operation_name(operation)) + ": 3 ranks"));
}

TEST_F(DtrunBenchTest, EveryDtypeAndEveryOpIsExact) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const char* dtype : {"f64", "float", "f16", "bfloat16", "i64", "i32", "i16", "i8", "u8"})
    pairs.emplace_back(dtype, "sum");
  for (const char* op : {"prod", "min", "max", "avg"})
    for (const char* dtype : {"bf16", "u8"}) pairs.emplace_back(dtype, op);
  for (const char* op : {"max", "prod"}) pairs.emplace_back("bool", op);
  for (const char* op : {"band", "bor", "bxor"})
    for (const char* dtype : {"i8", "bool"}) pairs.emplace_back(dtype, op);
  for (const char* dtype : {"f32", "bf16"}) pairs.emplace_back(dtype, "premul_sum");
  pairs.emplace_back("i8", "min");
  for (const auto& [dtype, op] : pairs) {
    const CommandResult result =
        bench(3, {"collectives", "all_reduce", "reduce", "reduce_scatter", "-n", "1", "-w", "0",
                  "-b", "4", "-e", "4K", "-f", "1024", "-d", dtype, "-o", op});
    EXPECT_EQ(result.exit_code, 0) << dtype << " " << op << "\n" << result.describe();
    EXPECT_THAT(result.out, HasSubstr("# wrong elements: 0\n")) << dtype << " " << op;
  }
  const CommandResult moved =
      bench(3, {"collectives", "all_gather", "broadcast", "-n", "1", "-e", "64", "-d", "bool"});
  EXPECT_EQ(moved.exit_code, 0) << moved.describe();
}

TEST_F(DtrunBenchTest, RanksOfOneMachineAreMeasuredAsIfOnSeveral) {
  const CommandResult result = testing_support::run_command(
      {DTRUN_BINARY, "--nproc_per_node=3", "dtrun-bench", "collectives", "-n", "1", "-w", "1", "-e",
       "1M", "-f", "1024", "--machine-ranks", "2"},
      {.environment = {{"PATH", "/usr/bin:/bin"}, {"DTRUN_LOGS", "+collectives"}}});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("# wrong elements: 0\n"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 0 of 3, 1 peers by shared memory, 1 by tcp"),
                                HasSubstr("rank 2 of 3, 0 peers by shared memory, 2 by tcp")));
}

TEST_F(DtrunBenchTest, TheTableHasTheColumnsOfNcclTests) {
  const CommandResult result = bench(2, {"collectives", "all_reduce", "-n", "1", "-e", "8"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  std::istringstream lines(result.out);
  std::string line;
  Words columns, values;
  const auto words_of = [](const std::string& text) {
    std::istringstream words(text);
    return Words{std::istream_iterator<std::string>(words), {}};
  };
  while (std::getline(lines, line)) {
    if (line.find(" size ") != std::string::npos) columns = words_of(line.substr(1));
    if (!line.empty() && line.front() == ' ') values = words_of(line);
  }
  EXPECT_EQ(columns, (Words{"size", "count", "type", "redop", "root", "time", "p50", "p99", "algbw",
                            "busbw", "#wrong", "bound"}))
      << result.out;
  ASSERT_EQ(values.size(), columns.size()) << result.out;
  EXPECT_EQ(Words(values.begin(), values.begin() + 5), (Words{"8", "2", "f32", "sum", "-1"}));
  EXPECT_EQ(values[10], "0");
}

// The library would have to make the mistake; a contender over it does.
TEST_F(DtrunBenchTest, AMistakeIsCounted) {
  // One element of each of rank 1's five calls.
  const CommandResult spoilt = run(2, SPOILT_BENCH_BINARY, {"element", path("element.json")});
  EXPECT_EQ(spoilt.exit_code, 1) << spoilt.describe();
  EXPECT_THAT(spoilt.out, HasSubstr("# wrong elements: 5\n"));
  EXPECT_EQ(number(rows("element.json").at(0), "wrong"), 5);
  // A call that did nothing: the right result of an earlier one, in its place, is all wrong.
  const CommandResult stale = run(2, SPOILT_BENCH_BINARY, {"stale", path("stale.json")});
  EXPECT_EQ(stale.exit_code, 1) << stale.describe();
  EXPECT_GT(number(rows("stale.json").at(0), "wrong"), 1900);
  const CommandResult right = run(2, SPOILT_BENCH_BINARY, {"nothing", path("right.json")});
  EXPECT_EQ(right.exit_code, 0) << right.describe();
}

TEST_F(DtrunBenchTest, WithoutCheckNothingIsCalledRight) {
  const CommandResult result = bench(
      2, {"collectives", "broadcast", "-n", "1", "-e", "8", "--check", "0", "--csv", path("c")});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, AllOf(HasSubstr("N/A"), Not(HasSubstr("wrong elements"))));
}

TEST_F(DtrunBenchTest, TheBoundIsToldFromOneMebibyteOn) {
  const CommandResult result =
      bench(2, {"collectives", "all_gather", "-n", "3", "-b", "512K", "-e", "1M", "-f", "2",
                "--json", path("bound.json"), "--svg", path("bound.svg")});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const boost::json::array both = rows("bound.json");
  ASSERT_EQ(both.size(), 2U);
  EXPECT_TRUE(both[0].at("bound_share").is_null());
  const double share =
      both[1].at("bound_us").as_double() / both[1].at("p50_us").to_number<double>();
  EXPECT_NEAR(both[1].at("bound_share").to_number<double>(), share, share * 0.01);
}

TEST_F(DtrunBenchTest, WhatWasMeasuredIsWrittenInThreeForms) {
  const CommandResult result =
      bench(2, {"collectives", "all_reduce", "barrier", "-n", "2", "-e", "2M", "-f", "512",
                "--json", path("j"), "--csv", path("c"), "--svg", path("s")});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(rows("j").size(), 4U);
  std::istringstream lines(content("c"));
  std::string line;
  std::vector<std::size_t> commas;
  while (std::getline(lines, line))
    commas.push_back(static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')));
  EXPECT_EQ(commas.size(), 5U);
  EXPECT_THAT(commas, Each(15U));
  const std::string svg = content("s");
  EXPECT_THAT(
      svg, AllOf(HasSubstr("<svg xmlns="), HasSubstr("prefers-color-scheme: dark"),
                 HasSubstr(">all_reduce</text>"), HasSubstr("2 MiB: "), Not(HasSubstr("barrier")),
                 Not(HasSubstr("nan")), Not(HasSubstr("inf")), HasSubstr("</svg>\n")));
}

TEST_F(DtrunBenchTest, AHyphenTakesThePlaceOfTheTable) {
  const CommandResult result =
      bench(2, {"collectives", "all_reduce", "-n", "1", "-e", "8", "--json", "-"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(base::parse_json(result.out, "stdout").at("rows").as_array().size(), 1U);
}

TEST_F(DtrunBenchTest, OneRankIsEnough) {
  const CommandResult result = bench(1, {"collectives", "-n", "1", "-e", "8"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, HasSubstr("# send_recv: left out, one rank has nobody to send to\n"));
}

TEST_F(DtrunBenchTest, AnotherBackendIsMeasuredAlike) {
  if (!collectives::is_backend_available("gloo")) GTEST_SKIP() << "no gloo here (libgloo-dev)";
  const CommandResult result =
      bench(2, {"collectives", "--backend", "gloo", "-n", "1", "-w", "0", "-e", "4K", "-f", "512"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, AllOf(HasSubstr("backend gloo"), HasSubstr("# wrong elements: 0\n")));
}

TEST_F(DtrunBenchTest, SeveralBackendsAreMeasuredInOneRun) {
  if (!collectives::is_backend_available("gloo")) GTEST_SKIP() << "no gloo here (libgloo-dev)";
  const CommandResult result = bench(2, {"collectives", "--backend",
                                         "gloo,cpu",    "all_reduce",
                                         "all_gather",  "-n",
                                         "1",           "-w",
                                         "0",           "-e",
                                         "4K",          "-f",
                                         "512",         "--machine-ranks",
                                         "1",           "--json",
                                         path("j"),     "--csv",
                                         path("c"),     "--svg",
                                         path("s")});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, AllOf(HasSubstr("# all_gather: 2 ranks, backend gloo"),
                                HasSubstr("# all_gather: 2 ranks, backend cpu"),
                                HasSubstr("# wrong elements: 0\n")));
  EXPECT_EQ(base::read_json_file(path("j")).at("backend").as_string(), "gloo,cpu");
  std::map<std::string, int> rows_of;
  for (const boost::json::value& row : rows("j"))
    ++rows_of[std::string(row.at("backend").as_string())];
  EXPECT_EQ(rows_of, (std::map<std::string, int>{{"gloo", 4}, {"cpu", 4}}));
  EXPECT_THAT(content("c"),
              AllOf(HasSubstr("all_reduce,gloo,2,8,"), HasSubstr("gather,cpu,2,4096")));
  const std::string svg = content("s");
  EXPECT_THAT(svg, AllOf(HasSubstr("class=\"line l0\""), HasSubstr("class=\"line l1\""),
                         HasSubstr("<title>gloo, 4 KiB: "), HasSubstr("<title>cpu, 4 KiB: ")));
}

TEST_F(DtrunBenchTest, ABackendOfAPluginIsMeasuredBesideOthers) {
  const CommandResult result =
      bench(2, {"collectives", "--plugin", STORE_PLUGIN, "--backend", "store,cpu", "all_reduce",
                "broadcast", "-n", "1", "-w", "0", "-e", "4K", "-f", "512"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, AllOf(HasSubstr("# broadcast: 2 ranks, backend store"),
                                HasSubstr("# wrong elements: 0\n")));
  const CommandResult lacking =
      bench(2, {"collectives", "--plugin", STORE_PLUGIN, "--backend", "store", "all_gather"});
  EXPECT_NE(lacking.exit_code, 0);
  EXPECT_THAT(lacking.err, HasSubstr("backend 'store' has no all_gather"));
  if (std::string(DTRUN_STEPPED_CLOCK).empty()) return;
  const CommandResult no_plugin = bench(2, {"collectives", "--plugin", DTRUN_STEPPED_CLOCK});
  EXPECT_EQ(no_plugin.exit_code, 64) << no_plugin.describe();
  EXPECT_THAT(no_plugin.err, HasSubstr("it defines no dtrun_register_backends"));
}

// RANK is not set there: dtrun-bench learns its rank from MPI.
TEST_F(DtrunBenchTest, MpirunsRanksAreMeasuredAlike) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "Open MPI keeps memory of its own, and unloads the plugins that took it";
#endif
  if (testing_support::run_command({"sh", "-c", "command -v mpirun.openmpi"}).exit_code != 0)
    GTEST_SKIP() << "Open MPI's mpirun is not here (openmpi-bin)";
  Words words = {"mpirun.openmpi",
                 "--allow-run-as-root",
                 "--oversubscribe",
                 "--mca",
                 "btl_vader_backing_directory",
                 folder_,
                 "--mca",
                 "orte_tmpdir_base",
                 folder_,
                 "-n",
                 "2"};
  for (const char* word : {DTRUN_BENCH_BINARY, "collectives", "--backend", "mpi", "-n", "1", "-w",
                           "0", "-m", "1", "-e", "4K", "-f", "512"})
    words.emplace_back(word);
  const CommandResult result = testing_support::run_command(words);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(result.out, AllOf(HasSubstr("backend mpi"), HasSubstr("# wrong elements: 0\n")));
}

/// What the planner predicts of an all_gather along tp.
double gather_seconds(const Words& links) {
  Words words = {DTRUN_PLAN_BINARY, "--mesh", "1,2",       "--names", "dp,tp",  "--shape",
                 "1024,1024",       "--from", "[R, S(0)]", "--to",    "[R, R]", "--json"};
  words.insert(words.end(), links.begin(), links.end());
  const CommandResult plan = testing_support::run_command(words);
  EXPECT_EQ(plan.exit_code, 0) << plan.describe();
  const boost::json::value told = base::parse_json(plan.out, "the plan");
  EXPECT_EQ(told.at("chosen").at("steps").at(0).at("kind").as_string(), "all_gather");
  return told.at("chosen").at("seconds").to_number<double>();
}

// Two ranks: four take turns on a machine of two cores, and with other tests beside them a minute.
TEST_F(DtrunBenchTest, ThePlannerReadsWhatTuneWrites) {
  const CommandResult result =
      bench(2, {"tune", "--mesh", "1,2", "--names", "dp,tp", path("links.json")});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_THAT(content("links.json"), AllOf(HasSubstr("\"dp\": {"), HasSubstr("\"tp\": {")));
  const boost::json::value tuned = base::parse_json(content("links.json"), "links.json");
  const boost::json::value& link = tuned.at("tp");
  // The same numbers by hand cost the same, ten times as slow a link more, and the default link
  // something else.
  const auto by_hand = [&](double slower) {
    return fmt::format("1e-6:1e10,{}:{}", slower * link.at("latency").to_number<double>(),
                       link.at("bytes_per_second").to_number<double>() / slower);
  };
  const double by_table = gather_seconds({"--link-file", path("links.json")});
  EXPECT_NEAR(by_table, gather_seconds({"--link-rate", by_hand(1)}), by_table * 1e-3);
  EXPECT_NEAR(gather_seconds({"--link-rate", by_hand(10)}), 10 * by_table, by_table);
  EXPECT_NE(by_table, gather_seconds({}));
}

TEST_F(DtrunBenchTest, TheCollectivesReadWhatTuneWrites) {
  const struct {
    Words arguments;
    int ranks;
  } jobs[] = {
    {{}, 2},
    {{"--machine-ranks", "1"}, 2},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // it takes 10 s without
    {{"--machine-ranks", "2"}, 3},
#endif
  };
  for (const auto& job : jobs) {
    Words words = {"tune", path("costs.json")};
    words.insert(words.end(), job.arguments.begin(), job.arguments.end());
    const CommandResult tuned = bench(job.ranks, words);
    ASSERT_EQ(tuned.exit_code, 0) << tuned.describe();
    const collectives::CostTable table = collectives::CostTable::read(path("costs.json"));
    EXPECT_THAT(table.text(), HasSubstr("\"rounds_bytes\""));
    words = {DTRUN_BINARY,  "--nproc_per_node=" + std::to_string(job.ranks),
             "dtrun-bench", "collectives",
             "all_reduce",  "broadcast",
             "-n",          "2",
             "-e",          "64K",
             "-f",          "4"};
    words.insert(words.end(), job.arguments.begin(), job.arguments.end());
    const CommandResult used = testing_support::run_command(
        words, {.environment = {{"PATH", "/usr/bin:/bin"},
                                {"DTRUN_LOGS", "+collectives"},
                                {"DTRUN_COST_TABLE", path("costs.json")}}});
    EXPECT_EQ(used.exit_code, 0) << used.describe();
    EXPECT_THAT(used.err, HasSubstr("the cost table " + path("costs.json") + " says " +
                                    json_of(table.limits())));
    EXPECT_THAT(used.out, HasSubstr("# wrong elements: 0\n"));
  }
}

// Groups along one axis have one name: two lines must not take each other's times.
TEST_F(DtrunBenchTest, TuneMeasuresSeveralLinesOfAnAxisAtOnce) {
  if (!collectives::is_backend_available("gloo")) GTEST_SKIP() << "no gloo here (libgloo-dev)";
  const CommandResult tuned = bench(
      4, {"tune", "--mesh", "2,2", "--names", "dp,tp", "--backend", "gloo", path("links.json")});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.describe();
  EXPECT_THAT(collectives::CostTable::read(path("links.json")).text(),
              AllOf(HasSubstr("\"dp\""), HasSubstr("\"tp\"")));
}

TEST_F(DtrunBenchTest, TheLogSaysWhereTheCostTableDecides) {
  std::ofstream(path("0.json")) << R"({"collectives": {"post_bytes": 0}})";
  std::ofstream(path("1.json")) << R"({"collectives": {"post_bytes": 8}})";
  const auto run_with = [&](const std::string& table) {
    return testing_support::run_command(
        {DTRUN_BINARY, "--nproc_per_node=2", "sh", "-c",
         "DTRUN_COST_TABLE=" + table +
             " exec " DTRUN_BENCH_BINARY " collectives all_reduce -n 1 -e 8"},
        {.environment = {{"DTRUN_LOGS", "+collectives"}}});
  };
  const CommandResult used = run_with(path("0.json"));
  EXPECT_EQ(used.exit_code, 0) << used.describe();
  EXPECT_THAT(used.err, HasSubstr("are too many for posts; the cost table says so, else by posts"));
  const CommandResult apart = run_with(path("$RANK.json"));
  EXPECT_NE(apart.exit_code, 0) << apart.describe();
  EXPECT_THAT(apart.out + apart.err, HasSubstr("ranks disagree about the cost table"));
  const CommandResult absent = run_with(path("2.json"));
  EXPECT_NE(absent.exit_code, 0) << absent.describe();
  EXPECT_THAT(absent.out + absent.err, HasSubstr("DTRUN_COST_TABLE=" + path("2.json")));
}

TEST_F(DtrunBenchTest, WhatMakesNoSenseIsNamedWithTheRemedy) {
  const std::vector<std::pair<Words, std::string>> wrong = {
      {{}, "dtrun-bench collectives, or dtrun-bench tune"},
      {{"colectives"}, "nothing is called 'colectives'"},
      {{"collectives", "all_reduc"}, "did you mean all_reduce?"},
      {{"collectives", "--minbytez", "4"}, "did you mean --minbytes?"},
      {{"collectives", "-b", "1Q"}, "--minbytes=1Q is no size"},
      {{"collectives", "-b", "0"}, "--minbytes=0 is no size"},
      {{"collectives", "-e", "99999999999999999999"}, "is no size"},
      {{"collectives", "-b", "2", "-e", "1"}, "--minbytes=2 is more than --maxbytes=1"},
      {{"collectives", "-i", "1"}, "--stepbytes=1 is too little"},
      {{"collectives", "-o", "add"},
       "one of sum, prod, min, max, avg, band, bor, bxor, premul_sum"},
      {{"collectives", "-d", "c64"}, "one of f64, f32, f16, bf16, i64, i32, i16, i8, u8, bool"},
      {{"collectives", "-d", "bool", "-o", "avg"}, "--op=avg has no meaning for bool"},
      {{"collectives", "-o", "bor"}, "--op=bor has no meaning for f32"},
      {{"collectives", "-r", "2"}, "they are 0 to 1"},
      {{"collectives", "-n", "0"}, "--iters"},
      {{"collectives", "--json", "-", "--csv", "-"}, "only one of"},
      {{"collectives", "barrier", "--svg", path("s")}, "barrier moves no bytes"},
      {{"collectives", "--json", path("no/j")}, "no/j"},
      {{"collectives", "--backend", "smoke"}, "smoke"},
      {{"collectives", "--backend", "gloo", "--machine-ranks", "1"}, "leave out one of the two"},
      {{"collectives", "--backend", "cpu,smoke"}, "smoke"},
      {{"collectives", "--backend", "cpu,gloo,cpu"}, "cpu is named twice"},
      {{"collectives", "--backend", "cpu,cpu:cpu"}, "cpu:cpu is named twice"},
      {{"collectives", "--backend", "mpi,staged"}, "gives none a GPU"},
      {{"collectives", "--backend", "cpu,mpi", "--machine-ranks", "1"}, "that mpirun starts"},
      {{"collectives", "--plugin", path("no.so")}, "no.so cannot be used"},
      {{"collectives", "--machine-ranks", "0"}, "--machine-ranks"},
      {{"collectives", "--backend", "gloo", "--shared-memory"}, "leave out one of the two"},
      {{"tune"}, "FILE is required"},
      {{"tune", "--names", "collectives", path("t")}, "no axis can be called collectives"},
      {{"tune", "--mesh", "3", path("t")}, "the job has 2"},
      {{"tune", "--names", "a,b", path("t")}, "the mesh has 1 axes"},
  };
  for (const auto& [arguments, words] : wrong) {
    const CommandResult result = bench(2, arguments);
    EXPECT_EQ(result.exit_code, 64) << words << "\n" << result.describe();
    EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(result.out, "") << words;
  }
}

TEST(BenchOperationTest, TheFactorsAreThoseOfNcclTests) {
  const std::map<Operation, double> of_four = {
      {Operation::all_reduce, 1.5},      {Operation::reduce, 1},       {Operation::broadcast, 1},
      {Operation::all_gather, 0.75},     {Operation::all_to_all, .75}, {Operation::gather, 0.75},
      {Operation::reduce_scatter, 0.75}, {Operation::scatter, 0.75},   {Operation::barrier, 0},
      {Operation::send_recv, 1}};
  ASSERT_EQ(of_four.size(), all_operations().size());
  for (const auto& [operation, factor] : of_four) {
    EXPECT_DOUBLE_EQ(bus_factor(operation, 4), factor) << operation_name(operation);
    EXPECT_EQ(bus_factor(operation, 1), 0) << operation_name(operation);
  }
}

TEST(BenchOperationTest, ABoundCountsWhatIsReadOnceAndWrittenOnce) {
  // Of two, four and eight ranks, for each byte of the size.
  const std::map<Operation, std::array<double, 3>> factors = {
      {Operation::all_reduce, {2.5, 5.5, 11.5}},
      {Operation::reduce, {1.5, 2.5, 4.5}},
      {Operation::reduce_scatter, {1.5, 2.5, 4.5}},
      {Operation::broadcast, {1, 3, 7}},
      {Operation::all_gather, {2, 4, 8}},
      {Operation::all_to_all, {2, 4, 8}},
      {Operation::gather, {1, 1, 1}},
      {Operation::scatter, {1, 1, 1}},
      {Operation::send_recv, {2, 4, 8}},
      {Operation::barrier, {0, 0, 0}}};
  ASSERT_EQ(factors.size(), all_operations().size());
  for (const auto& [operation, of_ranks] : factors) {
    const Call one = call_of_size({.operation = operation}, 1 << 20, 1);
    EXPECT_EQ(bytes_moved(one, 1), 0) << operation_name(operation);
    for (std::size_t i = 0; i < of_ranks.size(); ++i) {
      const int ranks = 2 << i;
      const Call call = call_of_size({.operation = operation}, 1 << 20, ranks);
      EXPECT_DOUBLE_EQ(bytes_moved(call, ranks), of_ranks[i] * (1 << 20))
          << operation_name(operation) << " of " << ranks;
    }
  }
}

TEST(BenchOperationTest, EachOperationThatMovesAMebibyteHasABound) {
  for (const Operation operation : all_operations())
    for (const int ranks : {1, 2, 3, 7, 8}) {
      const bool moves = ranks > 1 && operation != Operation::barrier;
      EXPECT_EQ(has_bound(call_of_size({.operation = operation}, 1 << 20, ranks), ranks), moves)
          << operation_name(operation) << " of " << ranks;
      EXPECT_FALSE(has_bound(call_of_size({.operation = operation}, 1 << 19, ranks), ranks));
    }
}

TEST(BenchOperationTest, ASizeIsThatOfTheWholeBuffer) {
  const Call gather = call_of_size({.operation = Operation::all_gather}, 1024, 4);
  EXPECT_EQ(gather.count, 64U);
  EXPECT_EQ(size_in_bytes(gather, 4), 1024U);
  EXPECT_EQ(input_count(gather, 0, 4), 64U);
  EXPECT_EQ(output_count(gather, 0, 4), 256U);
  const Call scatter = call_of_size({.operation = Operation::scatter, .root = 1}, 1, 4);
  EXPECT_EQ(size_in_bytes(scatter, 4), 16U);
  EXPECT_EQ(input_count(scatter, 0, 4), 0U);
  EXPECT_EQ(input_count(scatter, 1, 4), 4U);
}

TEST(BenchWayLimitsTest, ALimitMakesAllTimesTheLeast) {
  const std::vector<std::size_t> sizes = {1, 2, 4, 8};
  EXPECT_EQ(best_limit(sizes, std::vector<double>{1, 1, 9, 9}, std::vector<double>{2, 2, 2, 2}),
            2U);
  EXPECT_EQ(best_limit(sizes, std::vector<double>{3, 3, 3, 3}, std::vector<double>{2, 2, 2, 2}),
            0U);
  EXPECT_EQ(best_limit(sizes, std::vector<double>{1, 1, 1, 1}, std::vector<double>{2, 2, 2, 2}),
            8U);
  // One bad sample does not end it.
  EXPECT_EQ(best_limit(sizes, std::vector<double>{1, 3, 1, 9}, std::vector<double>{2, 2, 2, 2}),
            4U);
}

TEST(BenchWayLimitsTest, WhatTheRanksCannotMeasureStaysTheDefault) {
  // Posts take 1, stages as long as 2 KiB are to 4.
  const TimesWith times = [](const collectives::WayLimits& limits,
                             std::span<const std::size_t> measured) {
    std::vector<double> all;
    for (const std::size_t size : measured)
      all.push_back(limits.post_bytes > 0 ? 1 : (size <= 2048 ? 4 : 0.5));
    return all;
  };
  collectives::WayLimits wanted;
  EXPECT_EQ(measure_limits({1, 1}, times), wanted);
  wanted.post_bytes = 2048;
  EXPECT_EQ(measure_limits({4, 1}, times), wanted);
  // Two ranks send eight times as much by posts.
  wanted.post_bytes = 256;
  EXPECT_EQ(measure_limits({2, 1}, times), wanted);
  // Of 16 ranks what lies beside the posts of all together comes first.
  wanted = {};
  wanted.all_posts_bytes = 16 * 2048;
  EXPECT_EQ(measure_limits({16, 1}, times), wanted);
}

TEST(BenchWayLimitsTest, RoundsAndMachinesAreMeasuredWhereAMachineHasSeveralRanks) {
  // Messages 2, in chunks 3; rounds 1 up to 8 KiB, then 4; machines 5 up to 64 KiB, then 0.5.
  int worlds = 0;
  const TimesWith times = [&worlds](const collectives::WayLimits& limits,
                                    std::span<const std::size_t> measured) {
    ++worlds;
    std::vector<double> all;
    for (const std::size_t size : measured) {
      const double direct = limits.whole_reduce_bytes > 0 ? 2 : 3;
      const double rounds = size <= 8192 ? 1 : 4;
      const double machines = size <= 65536 ? 5 : 0.5;
      all.push_back(limits.rounds_bytes > 0 ? rounds
                                            : (limits.machines_bytes == 1 ? machines : direct));
    }
    return all;
  };
  const collectives::WayLimits limits = measure_limits({4, 2}, times);
  EXPECT_EQ(worlds, 3 * 4);  // three turns of four ways
  EXPECT_EQ(limits.rounds_bytes, 8192U);
  EXPECT_EQ(limits.machines_bytes, 65537U);
  EXPECT_EQ(limits.post_bytes, collectives::kDefaultLimits.post_bytes);
}

TEST(BenchPlotTest, EachReportHasALineAndAName) {
  const auto report = [](const char* backend, double time) {
    Report made{.backend = backend, .device = "cpu", .ranks = 2, .rows = {}};
    for (const std::size_t count : {2, 1 << 18})
      made.rows.push_back({.call = {.count = count},
                           .ranks = 2,
                           .measured = {.mean = time, .p50 = time},
                           .bound = count > 2 ? 100.0 : 0});
    return made;
  };
  const std::vector<Report> two = {report("dtrun", 10), report("Open MPI", 20)};
  const std::string both = svg_of(two);
  EXPECT_THAT(both, AllOf(HasSubstr(">dtrun</text>"), HasSubstr(">Open MPI</text>"),
                          HasSubstr("<title>Open MPI, 1 MiB: 52.4 GB/s</title>"),
                          HasSubstr("class=\"line l1\""), Not(HasSubstr("backend dtrun"))));
  // One bound for all, the first one's.
  EXPECT_EQ(both.find("<polyline class=\"bound\""), both.rfind("<polyline class=\"bound\""));
  const std::string one = svg_of({two.data(), 1});
  EXPECT_THAT(one, AllOf(HasSubstr("2 ranks, backend dtrun, tensors on cpu"),
                         Not(HasSubstr("class=\"line l1\"")), Not(HasSubstr(">dtrun</text>"))));
}

TEST(BenchMeasurementTest, APercentileIsASampleThatWasSeen) {
  const std::vector<double> sorted = {1, 2, 3, 4};
  EXPECT_EQ(percentile(sorted, 0.5), 2);
  EXPECT_EQ(percentile(sorted, 0.99), 4);
  EXPECT_EQ(percentile({7}, 0.5), 7);
  EXPECT_EQ(slowest_of({1, 5, 4, 2}, 2), (std::vector<double>{4, 5}));
}

}  // namespace
}  // namespace dtrun::bench
