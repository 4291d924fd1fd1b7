// What is decided of the ranks' output without any: which stream goes where, tags, JSON, folding,
// the status line's text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtrun/base/json.h"
#include "options/options.h"
#include "output/json_line.h"
#include "output/line_filter.h"
#include "output/line_fold.h"
#include "output/log_folder.h"
#include "output/status_line.h"
#include "sources/option_sources.h"
#include "support/thrown_error.h"
#include "text/json_string.h"

namespace dtrun::launcher {
namespace {

using base::ErrorCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

OutputOptions output_options(std::vector<std::string> arguments, base::Environment environment = {},
                             const char* called_as = "dtrun") {
  arguments.push_back("program");
  return parse_options(called_as, arguments, environment).output;
}

std::string why_not(const std::vector<std::string>& arguments) {
  const auto error = testing_support::error_of([&] { output_options(arguments); });
  EXPECT_TRUE(error && error->code() == ErrorCode::kUsage);
  return error ? error->what() : "";
}

TEST(OutputDecisionsTest, StreamsGoIntoFilesAndToTheConsoleAsAskedFor) {
  constexpr StreamPlan kShown{.file = false, .console = true},
      kKept{.file = true, .console = false}, kBoth{.file = true, .console = true}, kNowhere{};
  const auto plans = [](const OutputOptions& options, int rank) {
    return std::vector{options.plan(rank, Stream::kOut), options.plan(rank, Stream::kError)};
  };
  EXPECT_THAT(plans(output_options({}), 0), ElementsAre(kShown, kShown));
  EXPECT_THAT(plans(output_options({"-r", "3"}), 7), ElementsAre(kKept, kKept));
  EXPECT_THAT(plans(output_options({"-r", "1", "-t", "2"}), 0), ElementsAre(kKept, kBoth));
  EXPECT_THAT(plans(output_options({"-r", "3", "-t", "3"}), 0), ElementsAre(kBoth, kBoth));
  const OutputOptions map = output_options({"--redirects=0:3,12:1", "--tee=1:2"});
  EXPECT_THAT(plans(map, 0), ElementsAre(kKept, kKept));
  EXPECT_THAT(plans(map, 1), ElementsAre(kShown, kBoth));
  EXPECT_THAT(plans(map, 2), ElementsAre(kShown, kShown));
  EXPECT_THAT(plans(map, 12), ElementsAre(kKept, kShown));
  const OutputOptions none = output_options({"-r", "1", "-t", "2", "--log-dir=/dev/null"});
  EXPECT_THAT(plans(none, 0), ElementsAre(kNowhere, kShown));
  const OutputOptions some = output_options({"-t", "1", "--local-ranks-filter=0,2"});
  EXPECT_THAT(plans(some, 2), ElementsAre(kBoth, kShown));
  EXPECT_THAT(plans(some, 1), ElementsAre(kKept, kNowhere));
  EXPECT_THAT(some.warnings(2), ElementsAre(HasSubstr("local rank 2, and this node has 2 ranks")));
  EXPECT_THAT(map.warnings(4), ElementsAre(HasSubstr("--redirects names local rank 12")));
}

TEST(OutputDecisionsTest, WhatCannotBeReadIsRefusedByItsName) {
  for (const char* bad : {"4", "x", "0:4", "0:1,", "0:1,0:2", "-1:1", "1:", ":1", "0:3;1:1", ""})
    EXPECT_THAT(why_not({std::string("--tee=") + bad}), HasSubstr("must be 0 (no stream)")) << bad;
  EXPECT_THAT(why_not({"--local-ranks-filter=0,x"}), HasSubstr("must be local ranks"));
  EXPECT_THAT(why_not({"--tag-template=${hots}"}), HasSubstr("has '${hots}', which is none of"));
  EXPECT_THAT(why_not({"--tag-template=a$"}), HasSubstr("has '$', which is none of"));
  EXPECT_THAT(why_not({"--tag=on"}), HasSubstr("must be auto, always or never"));
  EXPECT_THAT(why_not({"--color=x"}), HasSubstr("must be auto, always or never"));
  EXPECT_THAT(why_not({"--log-format=xml"}), HasSubstr("must be text or json"));
  EXPECT_THAT(why_not({"--status=x"}), HasSubstr("must be auto or never"));
  EXPECT_THAT(why_not({"--stdin=each"}), HasSubstr("must be a rank, all or none"));
  EXPECT_THAT(why_not({"--fold", "--log-format=json"}), HasSubstr("exclude each other"));
}

TEST(OutputDecisionsTest, FiltersAreSplitAtSingleCommas) {
  EXPECT_THAT(split_filters("loss,grad,,norm,"), ElementsAre("loss", "grad,norm"));
  EXPECT_TRUE(split_filters("").empty());
}

const LineOrigin kOrigin{1, "n1", "5", "2", "trainer", Stream::kError};

std::string rendered(const std::optional<TagTemplate>& tag) {
  if (!tag) return "none";
  return tag->render(kOrigin, {std::chrono::system_clock::time_point(milliseconds(1700000000123)),
                               milliseconds(61005)});
}

TEST(OutputDecisionsTest, TagsAreMadeFromTemplates) {
  const auto of_template = [](const std::string& text) {
    return rendered(output_options({"--tag=always", "--tag-template=" + text})
                        .tag(0, Stream::kOut, Destination::kOther));
  };
  EXPECT_EQ(of_template("$node ${host}:$rank/${local_rank} ${role}$role_name ${stream}|"),
            "1 n1:5/2 trainertrainer stderr|");
  EXPECT_EQ(of_template("${time} ${elapsed} $$5 "), "2023-11-14T22:13:20.123Z 61.005 $5 ");
  EXPECT_EQ(rendered(TagTemplate::parse("${a} $b ${rank", TagTemplate::Unknown::kLeft)),
            "${a} $b ${rank");
  EXPECT_EQ(in_colour_of_rank("[5]: ", 5), in_colour_of_rank("[5]: ", 13));
  EXPECT_NE(in_colour_of_rank("[5]: ", 5), in_colour_of_rank("[5]: ", 6));
  EXPECT_EQ(in_colour_of_rank("[0] ", 0), "\x1b[36m[0]\x1b[0m ");
}

TEST(OutputDecisionsTest, ALineThatIsBegunAnewOnATerminalHasItsTagAgain) {
  TaggedLines bar(Destination::kTerminal), file(Destination::kOther);
  EXPECT_EQ(bar.add("1%\r2%", "T "), "T 1%\rT 2%");
  EXPECT_EQ(bar.add("\r", "T "), "\r");
  EXPECT_EQ(bar.add("3%\r\r\n4%\r\n", "T "), "T 3%\r\r\nT 4%\r\n");
  EXPECT_EQ(file.add("1%\r2%\n", "T "), "T 1%\r2%\n");
}

TEST(OutputDecisionsTest, TagsStandWhereTheyAreWanted) {
  const auto of = [](const OutputOptions& options, Destination destination) {
    return rendered(options.tag(2, Stream::kError, destination));
  };
  constexpr auto kTerminal = Destination::kTerminal, kOther = Destination::kOther;
  EXPECT_EQ(of(output_options({}), kTerminal), "[1:5] ");
  EXPECT_EQ(of(output_options({}), kOther), "none");
  EXPECT_EQ(of(output_options({"-t", "3"}), kOther), "[1:5] ");
  EXPECT_EQ(of(output_options({"--tag=always"}), kOther), "[1:5] ");
  EXPECT_EQ(of(output_options({"--tag=never"}), kTerminal), "none");
  EXPECT_EQ(of(output_options({"--fold"}), kOther), "[5] ");
  const char* const torchrun = "/usr/bin/torchrun";
  EXPECT_EQ(of(output_options({"-t", "3"}, {}, torchrun), kOther), "[trainer2]:");
  EXPECT_EQ(of(output_options({"-t", "1"}, {}, torchrun), kOther), "none");
  EXPECT_EQ(of(output_options({"-t", "3", "--tag=never"}, {}, torchrun), kOther), "none");
  base::Environment environment;
  environment.set("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[rank${rank}/${x}]: ");
  EXPECT_EQ(of(output_options({"-t", "3"}, environment), kOther), "[rank5/${x}]: ");
  EXPECT_EQ(of(output_options({}, environment), kOther), "none");
  EXPECT_EQ(of(output_options({"-t", "3", "--tag-template=$rank|"}, environment), kOther), "5|");
}

TEST(OutputDecisionsTest, ColourIsAskedForByOptionThenEnvironmentThenTerminal) {
  struct Case {
    std::vector<std::string> arguments;
    std::vector<std::pair<const char*, const char*>> variables;
    bool on_terminal, elsewhere;
  };
  const Case cases[] = {
      {{}, {{"TERM", "xterm"}}, true, false},
      {{}, {}, false, false},
      {{}, {{"TERM", "dumb"}}, false, false},
      {{}, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}, false, false},
      {{}, {{"TERM", "xterm"}, {"NO_COLOR", ""}}, true, false},
      {{}, {{"FORCE_COLOR", "1"}}, true, true},
      {{}, {{"CLICOLOR_FORCE", "1"}}, true, true},
      {{}, {{"TERM", "xterm"}, {"CLICOLOR_FORCE", "0"}}, true, false},
      {{}, {{"TERM", "xterm"}, {"FORCE_COLOR", "0"}}, false, false},
      {{}, {{"TERM", "xterm"}, {"CLICOLOR", "0"}}, false, false},
      {{}, {{"NO_COLOR", "1"}, {"FORCE_COLOR", "1"}}, false, false},
      {{"--color=always"}, {{"NO_COLOR", "1"}}, true, true},
      {{"--color=never"}, {{"FORCE_COLOR", "1"}, {"TERM", "xterm"}}, false, false},
  };
  for (const Case& a_case : cases) {
    base::Environment environment;
    std::string text;
    for (const auto& [name, value] : a_case.variables) {
      environment.set(name, value);
      text += std::string(name) + "=" + value + " ";
    }
    const OutputOptions options = output_options(a_case.arguments, environment);
    EXPECT_EQ(options.coloured(Destination::kTerminal), a_case.on_terminal) << text;
    EXPECT_EQ(options.coloured(Destination::kOther), a_case.elsewhere) << text;
  }
}

TEST(OutputDecisionsTest, ALineIsAnObjectOfJson) {
  const LineTime time{std::chrono::system_clock::time_point(milliseconds(1700000000123)), {}};
  const std::string head =
      R"({"time":"2023-11-14T22:13:20.123Z","node":1,"host":"n1","rank":5,"local_rank":2,"stream":"stderr",)";
  JsonLines lines(kOrigin);
  EXPECT_EQ(lines.add("a \"b\" \\ \t\x01\n\n", time), head +
                                                          R"("text":"a \"b\" \\ \t\u0001"})"
                                                          "\n" +
                                                          head +
                                                          R"("text":""})"
                                                          "\n");
  EXPECT_EQ(lines.add("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", time),
            head + "\"text\":\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\",\"partial\":true}\n");
  // Cut, overlong, a surrogate, beyond the last: none is UTF-8.
  for (const char* bad : {"\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "\x80"})
    EXPECT_THAT(std::string(lines.add(bad, time)), HasSubstr("\"base64\":\"")) << bad;
  EXPECT_THAT(std::string(lines.add("\xff", time)), HasSubstr("\"base64\":\"/w==\""));
  EXPECT_THAT(std::string(lines.add("\xff\xfe", time)), HasSubstr("\"base64\":\"//4=\""));
  EXPECT_THAT(std::string(lines.add("\xff\xfe\xfd", time)), HasSubstr("\"base64\":\"//79\""));
}

// Boost reads JSON by rules of its own. The bytes stand across the words that are looked at at
// once.
TEST(OutputDecisionsTest, EveryPairOfBytesIsWhatAReaderOfJsonGetsOrIsNoText) {
  const std::string before = "[\"", after = "\"]";
  int texts = 0;
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      const std::size_t offset = static_cast<std::size_t>(first + second) % 9;
      const std::string text = std::string(offset, 'x') + static_cast<char>(first) +
                               static_cast<char>(second) + "yyyyyyyy\xc3\xa4";
      std::string json = before;
      if (!append_json_string(json, text)) {
        EXPECT_EQ(json, before);
        EXPECT_TRUE(first >= 0x80 || second >= 0x80) << first << ' ' << second;
        continue;
      }
      ++texts;
      const boost::json::value value = base::parse_json(json + after, "the line");
      ASSERT_EQ(value.at(0).as_string(), text) << first << ' ' << second;
      // DEL is shown, too.
      ASSERT_EQ(
          std::ranges::count_if(json, [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; }), 0);
    }
  EXPECT_EQ(texts, 128 * 128 + 30 * 64);  // ASCII, and all letters of two bytes
}

TEST(OutputDecisionsTest, ALongLineIsSeveralObjectsThatCutNoCharacter) {
  JsonLines lines(kOrigin);
  std::string line = "x";
  while (line.size() < 3 * JsonLines::kMostBytes) line += "\xe2\x82\xac";
  const std::string objects(lines.add(line + "\n", {}));
  EXPECT_EQ(std::count(objects.begin(), objects.end(), '\n'), 4);
  EXPECT_EQ(objects.find("base64"), std::string::npos);
  std::string text, rest = objects;
  for (std::size_t at; (at = rest.find("\"text\":\"")) != std::string::npos;) {
    rest.erase(0, at + 8);
    text += rest.substr(0, rest.find('"'));
  }
  EXPECT_EQ(text, line);
}

std::vector<LineFold::Line> taken(LineFold& fold, LineFold::Time now) {
  std::vector<LineFold::Line> lines;
  fold.take(now, [&](const LineFold::Line& line) { lines.push_back(line); });
  return lines;
}

// What LineFold gives back, as "0-3 text".
std::vector<std::string> described(const std::vector<LineFold::Line>& lines) {
  std::vector<std::string> result;
  for (const LineFold::Line& line : lines)
    result.push_back(describe_ranks(line.ranks, 0) + " " + line.text);
  return result;
}

TEST(OutputDecisionsTest, TheSameLineOfAllRanksIsOneAtOnce) {
  const LineFold::Time start;
  LineFold fold(3, milliseconds(80));
  for (int rank = 0; rank < 3; ++rank) {
    fold.add(rank, Stream::kOut, "same", start);
    fold.add(rank, Stream::kOut, "mine " + std::to_string(rank), start);
    fold.add(rank, Stream::kOut, "same again", start);
    fold.add(rank, Stream::kError, "same", start);
  }
  EXPECT_THAT(described(taken(fold, start)), ElementsAre("0-2 same", "0 mine 0", "1 mine 1",
                                                         "2 mine 2", "0-2 same again", "0-2 same"));
  EXPECT_TRUE(fold.empty());
}

TEST(OutputDecisionsTest, ALineWaitsForTheWindowAndNoLonger) {
  const LineFold::Time start;
  LineFold fold(3, milliseconds(80));
  fold.add(0, Stream::kOut, "a", start);
  fold.add(2, Stream::kOut, "b", start + milliseconds(50));
  fold.add(1, Stream::kOut, "a", start + milliseconds(60));
  EXPECT_TRUE(taken(fold, start + milliseconds(79)).empty());
  EXPECT_EQ(fold.next(), start + milliseconds(80));
  EXPECT_THAT(described(taken(fold, start + milliseconds(80))), ElementsAre("0-1 a"));
  EXPECT_EQ(fold.next(), start + milliseconds(130));
  EXPECT_THAT(described(taken(fold, LineFold::Time::max())), ElementsAre("2 b"));
  EXPECT_FALSE(fold.next());
}

// Random lines of few texts: all come back, each rank's in its order.
TEST(OutputDecisionsTest, FoldingLosesNoLineAndKeepsTheOrderOfEachRank) {
  std::uint32_t state = 1;
  const auto random = [&state](std::uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % below;
  };
  for (int run = 0; run < 200; ++run) {
    LineFold fold(4, milliseconds(5));
    std::vector<std::string> written[4], read[4];
    LineFold::Time now;
    std::size_t folded = 0;
    const auto take = [&](const std::vector<LineFold::Line>& lines) {
      folded += lines.size();
      for (const LineFold::Line& line : lines)
        for (const int rank : line.ranks) read[rank].push_back(line.text);
    };
    for (int i = 0; i < 200; ++i) {
      const auto rank = random(4);
      written[rank].push_back(std::to_string(random(1 + random(5))));
      fold.add(static_cast<int>(rank), Stream::kOut, written[rank].back(), now);
      now += milliseconds(random(3) / 2);
      if (random(3) == 0) take(taken(fold, now));
    }
    take(taken(fold, LineFold::Time::max()));
    for (int rank = 0; rank < 4; ++rank) ASSERT_EQ(read[rank], written[rank]) << run;
    EXPECT_LT(folded, 200u);
  }
}

// One rank is thousands of lines ahead, and the other has written one of its own before.
TEST(OutputDecisionsTest, LinesAreFoldedHoweverFarTheirRanksAreApart) {
  LineFold fold(2, seconds(1000));
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i) fold.add(0, Stream::kOut, std::to_string(i), {});
  fold.add(1, Stream::kOut, "own", {});
  for (int i = 0; i < kLines; ++i) {
    fold.add(1, Stream::kOut, std::to_string(i), {});
    if (i % 10 == 0) fold.add(1, Stream::kOut, "own " + std::to_string(i), {});
  }
  int both = 0;
  fold.take(LineFold::Time::max(),
            [&](const LineFold::Line& line) { both += line.ranks.size() == 2 ? 1 : 0; });
  EXPECT_EQ(both, kLines);
}

TEST(OutputDecisionsTest, WhatWaitsToBeFoldedIsBounded) {
  LineFold fold(2, seconds(1000));
  std::size_t passed_on = 0;
  for (int i = 0; i < 20'000; ++i) {
    fold.add(0, Stream::kOut, std::to_string(i), {});
    passed_on += taken(fold, {}).size();
  }
  EXPECT_GT(passed_on, 10'000u);
  fold.add(0, Stream::kOut, std::string(2 << 20, 'x'), {});
  EXPECT_GT(taken(fold, {}).size(), 8'000u);
}

TEST(OutputDecisionsTest, RanksAreDescribedByTheirRuns) {
  EXPECT_EQ(describe_ranks({7, 0, 1, 3, 2}, 0), "0-3,7");
  EXPECT_EQ(describe_ranks({1, 0, 5}, 8), "8-9,13");
  EXPECT_EQ(describe_ranks({4}, 0), "4");
}

TEST(OutputDecisionsTest, TheStatusSaysWhatThereIsRoomFor) {
  const StatusFacts facts{.up = 3, .ranks = 4, .round = 2, .restarts = 1, .max_restarts = 3};
  const auto text = [&](std::size_t columns) {
    return status_text(facts, seconds(133), Letters::kUtf8, columns);
  };
  EXPECT_EQ(text(80), "3/4 up · round 2, restart 1/3 · 02:13");
  EXPECT_EQ(text(37), "3/4 up · round 2, restart 1/3");
  EXPECT_EQ(text(12), "3/4 up");
  EXPECT_EQ(text(3), "");
  EXPECT_EQ(status_text({.up = 1, .ranks = 1}, seconds(3725), Letters::kAscii, 80),
            "1/1 up | 1:02:05");
}

TEST(OutputDecisionsTest, ANameOfAJobThatReachesAPathIsPlain) {
  EXPECT_EQ(file_name_of("job-7_a.b"), "job-7_a.b");
  EXPECT_EQ(file_name_of("../../etc/\n\x1b[0m"), "_._.._etc____0m");
  EXPECT_EQ(file_name_of(std::string(1000, 'a')).size(), 64u);
  EXPECT_EQ(file_name_of("\xc3\xa4"), "__");
}

}  // namespace
}  // namespace dtrun::launcher
