#include "dtrun/dtensor/layout/sharding_picture.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "dtrun/dtensor/layout/box.h"
#include "dtrun/dtensor/layout/notation.h"

namespace dtrun::dtensor {
namespace {

ShardingSubject subject(const tensors::Shape& shape, const std::vector<int>& mesh,
                        const std::string& layout) {
  return {shape, mesh, parse_layout(layout, shape, mesh)};
}

std::string drawn(const tensors::Shape& shape, const std::vector<int>& mesh,
                  const std::string& layout) {
  return sharding_text(subject(shape, mesh, layout));
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// What the tooltips of an SVG's cells say, in their order.
std::vector<std::string> cells_of(const std::string& svg) {
  const std::string begin = "<title>", end = "</title>";
  std::vector<std::string> cells;
  for (std::size_t at = svg.find(begin); at != std::string::npos; at = svg.find(begin, at)) {
    at += begin.size();
    cells.push_back(svg.substr(at, svg.find(end, at) - at));
  }
  return cells;
}

TEST(ShardingPictureTest, UnevenShardsOfAMatrixStandWhereTheyLie) {
  EXPECT_EQ(drawn({7, 5}, {2, 2}, "S(0), S(1)"), R"([7, 5] on (2, 2): [S(0), S(1)]

                    0:3                          3:5
    ┌──────────────────────────────────┬──────────────────────┐
    │                                  │                      │
0:4 │                0                 │          1           │
    │                                  │                      │
    ├──────────────────────────────────┼──────────────────────┤
    │                                  │                      │
4:7 │                2                 │          3           │
    │                                  │                      │
    └──────────────────────────────────┴──────────────────────┘
)");
}

TEST(ShardingPictureTest, AVectorIsOneRow) {
  EXPECT_EQ(drawn({5}, {4}, "S(0)"), R"([5] on (4): [S(0)]

          0:2                    2:4               4:5
┌──────────────────────┬──────────────────────┬───────────┐
│          0           │          1           │     2     │
└──────────────────────┴──────────────────────┴───────────┘
1 rank holds nothing.
)");
}

TEST(ShardingPictureTest, CopiesAndTermsAreToldApart) {
  EXPECT_TRUE(holds(drawn({4}, {2}, "R"), " 0, 1 "));
  EXPECT_TRUE(holds(drawn({4}, {2}, "P"), " 0+1 "));
  EXPECT_TRUE(holds(drawn({4}, {2, 2}, "R, P"), " 0+1, 2+3 "));
  EXPECT_TRUE(holds(drawn({}, {8}, "R"), " 0-7 "));
  EXPECT_TRUE(holds(drawn({4}, {8, 2}, "R, S(0)"), " 0, 2, ..., 14 (8 ranks) "));
}

TEST(ShardingPictureTest, TheOrderOfShardsShows) {
  const auto ranks = [](const std::string& text) {
    std::string found;
    for (const char letter : text.substr(text.find("│"))) {
      if (letter >= '0' && letter <= '9') found += letter;
    }
    return found;
  };
  EXPECT_EQ(ranks(drawn({8}, {2, 2}, "[S01]")), "0123");
  EXPECT_EQ(ranks(drawn({8}, {2, 2}, "[S10]")), "0213");
}

TEST(ShardingPictureTest, EachChunkOfTheDimsBeforeIsAPictureOfItsOwn) {
  const std::string text = drawn({4, 2, 2}, {2}, "S(0)");
  EXPECT_TRUE(holds(text, "dim 0 at 0:2\n")) << text;
  EXPECT_TRUE(holds(text, "dim 0 at 2:4\n")) << text;
  EXPECT_TRUE(holds(drawn({32, 2, 2}, {16}, "S(0)"), "... and 8 more such pictures"));
}

TEST(ShardingPictureTest, EmptyPartsAndEmptyTensorsAreSaid) {
  EXPECT_TRUE(holds(drawn({2}, {4}, "S(0)"), "2 ranks hold nothing."));
  EXPECT_TRUE(holds(drawn({0, 4}, {4}, "S(0)"), "It has no elements."));
}

TEST(ShardingPictureTest, ManyChunksAreShortened) {
  const std::string text = drawn({65536, 4}, {4096}, "S(0)");
  EXPECT_TRUE(holds(text, "4095")) << text;
  EXPECT_TRUE(holds(text, "...")) << text;
  EXPECT_LT(text.size(), 8000U);
}

TEST(ShardingPictureTest, ColoursAreOnlyInTheTerminalsForm) {
  const ShardingSubject what = subject({8}, {2}, "S(0)");
  EXPECT_FALSE(holds(sharding_text(what), "\x1b["));
  EXPECT_TRUE(holds(sharding_text(what, Colors::terminal), "\x1b[30;48;5;153m"));
}

TEST(ShardingPictureTest, TheSvgHasACellForEachPartAndEscapesItsTitle) {
  ShardingSubject what = subject({7, 5}, {2, 2}, "S(0), S(1)");
  what.title = "a<b & c";
  const std::string svg = sharding_svg(what);
  EXPECT_EQ(cells_of(svg).size(), 4U);
  EXPECT_TRUE(holds(svg, "a&lt;b &amp; c"));
  EXPECT_TRUE(holds(svg, "rank 3: rows 4:7, columns 3:5"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  // To look at them: DTRUN_PICTURES=FOLDER.
  if (const char* const folder = std::getenv("DTRUN_PICTURES")) {
    std::ofstream(std::string(folder) + "/matrix.svg")
        << sharding_svg(subject({7, 5}, {2, 2}, "S(0), S(1)"));
    std::ofstream(std::string(folder) + "/cube.svg")
        << sharding_svg(subject({4, 6, 9}, {2, 2, 2}, "S(0), S(2), P"));
    std::ofstream(std::string(folder) + "/vector.svg")
        << sharding_svg(subject({5}, {4, 2}, "S(0), R"));
  }
}

/// Without the blanks around it.
std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

std::vector<std::string> pieces_of(const std::string& line, const std::string& separator) {
  std::vector<std::string> pieces;
  std::size_t at = 0;
  for (std::size_t end = 0; end != std::string::npos; at = end + separator.size()) {
    end = line.find(separator, at);
    pieces.push_back(trimmed(line.substr(at, end - at)));
  }
  return pieces;
}

/// The same of a picture for the terminal, put together of its rulers and of what stands in it.
std::vector<std::string> cells_in(const std::string& text) {
  std::vector<std::string> cells, columns;
  std::string dims, last;
  for (const std::string& line : pieces_of(text, "\n")) {
    if (line.starts_with("dim ")) dims = line + ", ";
    if (line.starts_with("┌")) {
      columns.clear();
      for (const std::string& range : pieces_of(last, " "))
        if (!range.empty()) columns.push_back(range);
    }
    last = line;
    const std::vector<std::string> pieces = pieces_of(line, "│");
    const std::string rows = pieces[0].empty() ? "" : "rows " + pieces[0] + ", ";
    for (std::size_t i = 1; i + 1 < pieces.size(); ++i) {
      if (pieces[i].empty()) continue;
      const bool is_number = columns.size() < i;
      cells.push_back("rank " + pieces[i] +
                      (is_number ? "" : ": " + dims + rows + "columns " + columns[i - 1]));
    }
  }
  return cells;
}

TEST(ShardingPictureTest, APictureOfAnyTensorSaysWhoHoldsWhichPart) {
  struct Drawn {
    tensors::Shape shape;
    std::vector<int> mesh;
    Placements placements;
    std::vector<std::string> cells;
    std::string foot = "";
  };
  const Drawn all[] = {
      {{4, 3, 2},
       {2, 2},
       {Shard(0), Shard(1)},
       {"rank 0: dim 0 at 0:2, rows 0:2, columns 0:2",
        "rank 1: dim 0 at 0:2, rows 2:3, columns 0:2",
        "rank 2: dim 0 at 2:4, rows 0:2, columns 0:2",
        "rank 3: dim 0 at 2:4, rows 2:3, columns 0:2"}},
      {{3, 2},
       {2, 2},
       {Shard(0), Partial()},
       {"rank 0+1: rows 0:2, columns 0:2", "rank 2+3: rows 2:3, columns 0:2"}},
      {{4}, {2, 2}, {Partial(), Replicate()}, {"rank 0+2, 1+3: columns 0:4"}},
      {{}, {2}, {Replicate()}, {"rank 0, 1"}},
      {{}, {2}, {Partial()}, {"rank 0+1"}},
      {{0, 4}, {2}, {Shard(0)}, {}, "It has no elements."},
      {{1, 4}, {2}, {Shard(0)}, {"rank 0: rows 0:1, columns 0:4"}, "1 rank holds nothing."},
      {{6},
       {3},
       {Shard(0, {1, 0, 5})},
       {"rank 0: columns 0:1", "rank 2: columns 1:6"},
       "1 rank holds nothing."},
      {{2, 3, 2},
       {2, 2},
       {Partial(), Shard(1)},
       {"rank 0+2: dim 0 at 0:2, rows 0:2, columns 0:2",
        "rank 1+3: dim 0 at 0:2, rows 2:3, columns 0:2"}},
      {{5, 2},
       {2},
       {Shard(0, {1, 4})},
       {"rank 0: rows 0:1, columns 0:2", "rank 1: rows 1:5, columns 0:2"}},
      {{2, 2, 2, 2},
       {2, 1, 2, 1},
       {Shard(0), Replicate(), Shard(3), Replicate()},
       {"rank 0: dim 0 at 0:1, dim 1 at 0:2, rows 0:2, columns 0:1",
        "rank 1: dim 0 at 0:1, dim 1 at 0:2, rows 0:2, columns 1:2",
        "rank 2: dim 0 at 1:2, dim 1 at 0:2, rows 0:2, columns 0:1",
        "rank 3: dim 0 at 1:2, dim 1 at 0:2, rows 0:2, columns 1:2"}},
      {{2, 2, 2, 2},
       {2, 2},
       {Shard(0), Shard(1)},
       {"rank 0: dim 0 at 0:1, dim 1 at 0:1, rows 0:2, columns 0:2",
        "rank 1: dim 0 at 0:1, dim 1 at 1:2, rows 0:2, columns 0:2",
        "rank 2: dim 0 at 1:2, dim 1 at 0:1, rows 0:2, columns 0:2",
        "rank 3: dim 0 at 1:2, dim 1 at 1:2, rows 0:2, columns 0:2"}}};
  for (const Drawn& drawn : all) {
    const std::string svg = sharding_svg(
        {drawn.shape, drawn.mesh, make_layout(drawn.shape, drawn.mesh, drawn.placements)});
    EXPECT_EQ(cells_of(svg), drawn.cells) << svg;
    const std::string text = sharding_text(
        {drawn.shape, drawn.mesh, make_layout(drawn.shape, drawn.mesh, drawn.placements)});
    EXPECT_EQ(cells_in(text), drawn.cells) << text;
    EXPECT_TRUE(text.ends_with(drawn.foot + "\n")) << text;
    EXPECT_TRUE(holds(svg, ">" + drawn.foot + "</text>\n</svg>\n")) << svg;
  }
}

}  // namespace
}  // namespace dtrun::dtensor
