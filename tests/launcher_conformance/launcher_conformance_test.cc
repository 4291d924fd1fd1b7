// dtrun does what torchrun does, but for what differences.cc lists. What torchrun 2.11 does was
// recorded: it takes two seconds for each case.
//
//     launcher_conformance_launcher_conformance_test                     dtrun against the record
//     LAUNCHER=torchrun launcher_conformance_launcher_conformance_test   torchrun against the
//     record RECORD=1 LAUNCHER=torchrun ...                                     makes it anew
#include <fnmatch.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "case_run.h"
#include "support/torch_home.h"

namespace dtrun::launcher_conformance {
namespace {

constexpr const char* kRecord = DTRUN_CONFORMANCE_SOURCES "/torchrun-2.11.json";

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool told(const char* variable, const std::string& value) {
  const char* const set = std::getenv(variable);
  return set != nullptr && set == value;
}

bool matches(const std::string& glob, const std::string& text) {
  return ::fnmatch(glob.c_str(), text.c_str(), 0) == 0;
}

// The number of the difference by choice that this is; -1: it is none.
int find_difference(const std::string& name, const std::string& fact, const std::string& torchrun,
                    const std::string& dtrun) {
  for (std::size_t i = 0; i < differences().size(); ++i) {
    const Difference& difference = differences()[i];
    if (matches(difference.of_case, name) && matches(difference.fact, fact) &&
        matches(difference.torchrun, torchrun) && matches(difference.dtrun, dtrun))
      return static_cast<int>(i);
  }
  return -1;
}

// Complains of what differs and is not to; adds the numbers of those that are.
void compare(const std::string& name, const Facts& torchrun, const Facts& dtrun,
             std::set<int>* used) {
  std::set<std::string> names;
  for (const Facts* facts : {&torchrun, &dtrun})
    for (const auto& [fact, value] : *facts) names.insert(fact);
  for (const std::string& fact : names) {
    const auto value = [&](const Facts& facts) {
      return facts.contains(fact) ? facts.at(fact) : std::string("-");
    };
    if (value(torchrun) == value(dtrun)) continue;
    const int found =
        used == nullptr ? -1 : find_difference(name, fact, value(torchrun), value(dtrun));
    if (found >= 0) used->insert(found);
    EXPECT_GE(found, 0) << "case '" << name << "', " << fact
                        << "\n  recorded of torchrun: " << value(torchrun)
                        << "\n  seen now:             " << value(dtrun);
  }
}

// Several at a time: most of it is waiting.
Record run_all(const Launcher& launcher, int at_a_time) {
  Record record;
  std::vector<const Case*> todo;
  for (const Case& a_case : cases()) todo.push_back(&a_case);
  std::vector<Facts> facts(todo.size());
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < at_a_time; ++i)
    threads.emplace_back([&] {
      for (std::size_t mine = next++; mine < todo.size(); mine = next++)
        facts[mine] = run_case(*todo[mine], launcher);
    });
  threads.clear();
  for (std::size_t i = 0; i < todo.size(); ++i) record[todo[i]->name] = std::move(facts[i]);
  return record;
}

TEST(LauncherConformance, DtrunDoesWhatTorchrunDoes) {
  if (told("LAUNCHER", "torchrun")) GTEST_SKIP() << "LAUNCHER=torchrun";
  const Record recorded = from_json(content_of(kRecord));
  const Record seen = run_all({.command = {DTRUN_BINARY}, .is_dtrun = true}, 2);
  std::set<int> used;
  for (const auto& [name, facts] : seen) {
    ASSERT_TRUE(recorded.contains(name))
        << name << ": record it of torchrun (the head of this file)";
    compare(name, recorded.at(name), facts, &used);
  }
  for (std::size_t i = 0; i < differences().size(); ++i)
    EXPECT_TRUE(used.contains(static_cast<int>(i)))
        << "is no difference any more: " << differences()[i].reason;
}

TEST(LauncherConformance, EveryDifferenceIsDocumented) {
  const std::string document = content_of(DTRUN_SOURCE_DIR "/docs/torchrun.md");
  for (const Difference& difference : differences())
    EXPECT_THAT(document, testing::HasSubstr(difference.reason));
}

TEST(LauncherConformance, TorchrunDoesWhatIsRecorded) {
  if (!told("LAUNCHER", "torchrun")) GTEST_SKIP() << "needs LAUNCHER=torchrun, and minutes";
  REQUIRE_TORCH(home);
  const Record seen = run_all(
      {.command = {home.folder + "/bin/torchrun"}, .python = home.folder + "/bin/python3"}, 4);
  if (told("RECORD", "1")) {
    std::ofstream(kRecord) << to_json(seen);
    return;
  }
  const Record recorded = from_json(content_of(kRecord));
  ASSERT_EQ(recorded.size(), seen.size());
  for (const auto& [name, facts] : seen) compare(name, recorded.at(name), facts, nullptr);
}

}  // namespace
}  // namespace dtrun::launcher_conformance
