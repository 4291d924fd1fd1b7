// The options of the ranks' output, from command line and environment: where it goes and how it
// looks. Part of Options.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "options/called_as.h"
#include "options/line_tag.h"
#include "options/option_binding.h"
#include "options/stream_choice.h"

namespace dtrun::launcher {

enum class Tagging { kAuto, kAlways, kNever };
enum class Colouring { kOnTerminal, kAlways, kNever };
enum class LineFormat { kText, kJson };
enum class Folding { kNone, kSameLines };
enum class StatusWish { kOnTerminal, kNever };
/// What the job does when nobody reads its standard output any more.
enum class ClosedOutput { kStop, kIgnore };

/// Where one stream goes; nowhere, where it is neither.
struct StreamPlan {
  bool file = false;
  bool console = false;
  bool operator==(const StreamPlan&) const = default;
};

struct OutputOptions {
  StreamChoice redirects;  ///< into files only
  StreamChoice tee;        ///< into files and to the console
  /// Below it every run makes a folder of its own; empty: a temporary one.
  std::string log_dir;
  /// Of the ranks' last operations; empty: that of the round, where it is kept.
  std::string flight_folder;
  /// Of the ranks' collectives and messages; empty: they are not traced.
  std::string trace_file;
  std::optional<std::set<int>> shown_local_ranks;  ///< on the console; none: all
  /// Lines with one of these texts also go into one file per attempt.
  std::vector<std::string> stdout_filters, stderr_filters;
  Tagging tagging = Tagging::kAuto;
  TagTemplate tag_template;      ///< of the user's; empty: the ones below
  TagTemplate own_tag_template;  ///< of what is not folded
  TagTemplate tee_tag_template;  ///< of tee'd streams, by the name that dtrun was called by
  Colouring colouring = Colouring::kOnTerminal;
  LineFormat format = LineFormat::kText;
  Folding folding = Folding::kNone;
  StatusWish status = StatusWish::kOnTerminal;
  ClosedOutput closed_output = ClosedOutput::kStop;
  bool control_codes = false;     ///< the terminal, if there is one, knows them
  std::optional<int> stdin_rank;  ///< who reads dtrun's standard input; none: nobody
  bool stdin_to_all = false;      ///< each rank of this node gets a copy of it
  bool stdin_is_given = false;    ///< by --stdin; else it is the default

  /// --log-dir=/dev/null: no files, not even the ranks' error.json.
  bool files_disabled() const { return log_dir == "/dev/null"; }
  /// Some stream goes into a file.
  bool any_files() const;
  /// Also error.json, where a folder was named.
  bool keeps_folder() const { return any_files() || (!log_dir.empty() && !files_disabled()); }
  const std::vector<std::string>& filters(Stream stream) const {
    return stream == Stream::kOut ? stdout_filters : stderr_filters;
  }

  /// Whether the console shows the rank's streams that go there.
  bool shows(int local_rank) const;
  StreamPlan plan(int local_rank, Stream stream) const;
  /// What stands before the lines of a stream; nullopt: nothing.
  std::optional<TagTemplate> tag(int local_rank, Stream stream, Destination destination) const;
  bool coloured(Destination destination) const;
  /// Warnings about local ranks that this node does not have.
  std::vector<std::string> warnings(int local_ranks) const;
};

void bind_output_options(OptionBinding& binding, OutputOptions& options);
/// Sets the options that follow from the bound ones. @throws Error kUsage: they contradict each
/// other
void complete_output_options(const CommandLine& line, const base::Environment& environment,
                             CalledAs called_as, OutputOptions& options);

/// The texts of a list with commas; two commas are one that belongs to the text.
std::vector<std::string> split_filters(std::string_view list);

}  // namespace dtrun::launcher
