#include "options/output_options.h"

#include <fmt/core.h>

#include <climits>

#include "dtrun/base/error.h"
#include "dtrun/base/split.h"
#include "dtrun/rendezvous/round_messages.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

constexpr const char* kOurTag = "[${node}:${rank}] ";
constexpr const char* kFoldedTag = "[${rank}] ";
constexpr const char* kTorchrunsTag = "[${role}${local_rank}]:";
constexpr const char* kPrefixVariable = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";

std::set<int> parse_local_ranks(const std::string& text) {
  std::set<int> ranks;
  for (const std::string_view part : base::split(text, ',')) {
    const auto rank = base::parse_integer(part);
    if (!rank || *rank < 0 || *rank >= rendezvous::rounds::kMostLocalRanks)
      throw demand("must be local ranks with commas: 0,2");
    ranks.insert(static_cast<int>(*rank));
  }
  return ranks;
}

bool is_yes(const std::string& text) {
  return !text.empty() && text != "0" && text != "false";
}

// Of the terminal, if there is one.
bool has_control_codes(const base::Environment& environment) {
  const std::string terminal = environment.get("TERM").value_or("");
  return !terminal.empty() && terminal != "dumb";
}

// If no option decides: first NO_COLOR, then the variables that demand colour, then whether it is a
// terminal.
Colouring colouring_of(const base::Environment& environment) {
  const auto text = [&](const char* name) { return environment.get(name).value_or(""); };
  if (!text("NO_COLOR").empty()) return Colouring::kNever;
  if (is_yes(text("FORCE_COLOR")) || is_yes(text("CLICOLOR_FORCE"))) return Colouring::kAlways;
  const bool unwanted = environment.get("FORCE_COLOR").value_or("1") == "0" ||
                        environment.get("CLICOLOR").value_or("1") == "0";
  return unwanted || !has_control_codes(environment) ? Colouring::kNever : Colouring::kOnTerminal;
}

int parse_stdin_rank(const std::string& text) {
  if (!base::parse_integer(text)) throw demand("must be a rank, all or none");
  return parse_integer_within(text, 0, INT_MAX);
}

}  // namespace

std::vector<std::string> split_filters(std::string_view list) {
  std::vector<std::string> filters(1);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] != ',') {
      filters.back() += list[i];
    } else if (i + 1 < list.size() && list[i + 1] == ',') {
      filters.back() += list[i++];
    } else {
      filters.emplace_back();
    }
  }
  std::erase(filters, "");
  return filters;
}

bool OutputOptions::any_files() const {
  const bool wanted =
      !redirects.nothing() || !tee.nothing() || !stdout_filters.empty() || !stderr_filters.empty();
  return wanted && !files_disabled();
}

bool OutputOptions::shows(int local_rank) const {
  return !shown_local_ranks || shown_local_ranks->contains(local_rank);
}

StreamPlan OutputOptions::plan(int local_rank, Stream stream) const {
  const bool teed = tee.includes(local_rank, stream);
  const bool redirected = !teed && redirects.includes(local_rank, stream);
  return {.file = (teed || redirected) && !files_disabled(),
          .console = !redirected && shows(local_rank)};
}

std::optional<TagTemplate> OutputOptions::tag(int local_rank, Stream stream,
                                              Destination destination) const {
  const bool teed = tee.includes(local_rank, stream);
  const bool folded = folding != Folding::kNone;
  const bool wanted =
      tagging == Tagging::kAlways || destination == Destination::kTerminal || teed || folded;
  if (tagging == Tagging::kNever || !wanted) return std::nullopt;
  if (!tag_template.empty()) return tag_template;
  if (folded) return TagTemplate::parse(kFoldedTag, TagTemplate::Unknown::kRefused);
  return teed ? tee_tag_template : own_tag_template;
}

bool OutputOptions::coloured(Destination destination) const {
  return colouring == Colouring::kAlways ||
         (colouring == Colouring::kOnTerminal && destination == Destination::kTerminal);
}

std::vector<std::string> OutputOptions::warnings(int local_ranks) const {
  std::vector<std::string> result;
  const auto check = [&](const char* option, int last) {
    if (last >= local_ranks)
      result.push_back(fmt::format("dtrun: {} names local rank {}, and this node has {} rank{}",
                                   option, last, local_ranks, local_ranks == 1 ? "" : "s"));
  };
  check("--redirects", redirects.last_local_rank());
  check("--tee", tee.last_local_rank());
  if (shown_local_ranks) check("--local_ranks_filter", *shown_local_ranks->rbegin());
  return result;
}

void bind_output_options(OptionBinding& binding, OutputOptions& options) {
  binding.parsed("redirects", options.redirects, parse_stream_choice);
  binding.parsed("tee", options.tee, parse_stream_choice);
  binding.text("log-dir", options.log_dir);
  binding.text("flight-recorder", options.flight_folder);
  binding.text("trace", options.trace_file);
  binding.parsed("local-ranks-filter", [&options](const std::string& text) {
    if (!text.empty() && text != "all") options.shown_local_ranks = parse_local_ranks(text);
  });
  binding.parsed("duplicate-stdout-filters", options.stdout_filters, split_filters);
  binding.parsed("duplicate-stderr-filters", options.stderr_filters, split_filters);
  binding.choice(
      "tag", options.tagging,
      {{"auto", Tagging::kAuto}, {"always", Tagging::kAlways}, {"never", Tagging::kNever}});
  binding.parsed("tag-template", [&options](const std::string& text) {
    options.tag_template = TagTemplate::parse(text, TagTemplate::Unknown::kRefused);
  });
  binding.choice("color", options.colouring,
                 {{"auto", Colouring::kOnTerminal},
                  {"always", Colouring::kAlways},
                  {"never", Colouring::kNever}});
  binding.choice("log-format", options.format,
                 {{"text", LineFormat::kText}, {"json", LineFormat::kJson}});
  binding.choice("fold", options.folding, {{"1", Folding::kSameLines}});
  binding.choice("status", options.status,
                 {{"auto", StatusWish::kOnTerminal}, {"never", StatusWish::kNever}});
  binding.parsed("stdin", [&options](const std::string& text) {
    options.stdin_to_all = text == "all";
    if (text != "none" && text != "all") options.stdin_rank = parse_stdin_rank(text);
  });
  binding.choice("on-closed-output", options.closed_output,
                 {{"stop", ClosedOutput::kStop}, {"ignore", ClosedOutput::kIgnore}});
}

void complete_output_options(const CommandLine& line, const base::Environment& environment,
                             CalledAs called_as, OutputOptions& options) {
  options.own_tag_template = TagTemplate::parse(kOurTag, TagTemplate::Unknown::kRefused);
  options.tee_tag_template = TagTemplate::parse(is_torchs_name(called_as) ? kTorchrunsTag : kOurTag,
                                                TagTemplate::Unknown::kRefused);
  if (!line.has("tag-template"))
    options.tag_template = TagTemplate::parse(environment.get(kPrefixVariable).value_or(""),
                                              TagTemplate::Unknown::kLeft);
  if (!line.has("color")) options.colouring = colouring_of(environment);
  options.control_codes = has_control_codes(environment);
  if (!options.control_codes) options.status = StatusWish::kNever;
  options.stdin_is_given = line.has("stdin");
  if (options.folding != Folding::kNone && options.format == LineFormat::kJson)
    throw Error(ErrorCode::kUsage, "--fold and --log_format=json exclude each other",
                "an object of JSON is one rank's line", "leave one of them out");
}

}  // namespace dtrun::launcher
