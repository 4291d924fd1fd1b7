// Lines of a trace: names that need escapes, times before zero, lanes.
#include "dtrun/base/trace_file.h"

#include <gmock/gmock.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "dtrun/base/json.h"

namespace dtrun::base {
namespace {

using testing::HasSubstr;

TEST(TraceFileTest, AFileIsJsonWhateverStandsInNames) {
  const std::string slice = trace_slice({.name = "a \"b\"\n\xff",
                                         .category = "op",
                                         .process = 3,
                                         .thread = 4,
                                         .begin_ns = -1,
                                         .end_ns = 1'234'567,
                                         .arguments = "{\"x\":1}"});
  EXPECT_THAT(slice, HasSubstr("\"ts\":-0.001,\"dur\":1234.568,"));
  const std::string arrow = trace_arrow(
      {.part = TraceArrow::Part::end, .id = 7, .name = "n", .process = 3, .thread = 4, .at_ns = 5});
  const boost::json::value file = parse_json(trace_file({trace_name("process_name", "rank 3", 3, 0),
                                                         trace_thread_order(3, 4, 2), slice, arrow},
                                                        "\"otherData\": {\"y\": 2}, "),
                                             "the file");
  EXPECT_EQ(file.at("otherData").at("y").as_int64(), 2);
  const boost::json::array& events = file.at("traceEvents").as_array();
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0].at("args").at("name").as_string(), "rank 3");
  EXPECT_EQ(events[1].at("args").at("sort_index").as_int64(), 2);
  EXPECT_EQ(events[2].at("name").as_string(), "a \"b\"\n\uFFFD");
  EXPECT_EQ(events[2].at("args").at("x").as_int64(), 1);
  EXPECT_EQ(events[3].at("ph").as_string(), "f");
  EXPECT_EQ(events[3].at("bp").as_string(), "e");
  EXPECT_TRUE(parse_json(trace_file({}), "none").at("traceEvents").as_array().empty());
}

TEST(TraceFileTest, WhatGoesOnAtTheSameTimeHasLanesOfItsOwn) {
  TraceLanes lanes;
  EXPECT_EQ(lanes.take(0, 10), 0);
  EXPECT_EQ(lanes.take(5, 8), 1);
  EXPECT_EQ(lanes.take(8, 9), 1);
  EXPECT_EQ(lanes.take(9, 20), 1);
  EXPECT_EQ(lanes.take(10, 12), 0);
  EXPECT_EQ(lanes.count(), 2);
}

}  // namespace
}  // namespace dtrun::base
