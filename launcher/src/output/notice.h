// Notices: what dtrun itself says on standard error, its log included: lines of text, or objects of
// JSON, one on a line:
// {"time":"2026-11-21T20:27:15.123Z","node":0,"host":"n0","level":"info","message":"..."}
// where "node" is null until it is known. One for the process, as the log's sink is.
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/base/log.h"
#include "plan/launch_plan.h"

namespace dtrun::launcher {

using NoticeLevel = base::log::Level;

/// The format of all notices that follow.
void use_notice_format(LineFormat format);
LineFormat notice_format();
/// This node's number in the round that begins.
void set_notice_node(int node_rank);
/// From here on a stopped reader does not stop this process. Not inherited by a fork.
/// @throws Error kSystem
void write_notices_by_thread();
/// Writes what still waits. False: the deadline passed before all of it was written.
bool finish_notices(base::Deadline deadline);

/// "dtrun: error: ..."
void print_error(const std::string& text);
/// "dtrun: ...", while ranks run.
void print_note(const LaunchPlan& plan, const std::string& text);
/// "dtrun: ..."
void print_line(NoticeLevel level, const std::string& text);
/// Several lines without a prefix; in JSON the message.
void print_text(NoticeLevel level, const std::string& text);
/// Lines that have a form of their own, which both formats keep.
void print_as_it_is(const std::string& text);
/// In JSON: an object with the fields of every notice, and `more`.
void print_object(NoticeLevel level, const std::string& message, const boost::json::object& more);

}  // namespace dtrun::launcher
