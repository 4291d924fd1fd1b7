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

StreamChoice read_streams(const OptionValues& values, const char* name) {
  try {
    return parse_stream_choice(values.text(name, "0"));
  } catch (const Error& error) {
    values.reject(name, error.summary());
  }
}

// One word of several, in their order.
int read_word(const OptionValues& values, const char* name, std::vector<std::string> words) {
  const std::string text = values.text(name, words[0]);
  for (std::size_t i = 0; i < words.size(); ++i)
    if (text == words[i]) return static_cast<int>(i);
  std::string all = words[0];
  for (std::size_t i = 1; i < words.size(); ++i)
    all += (i + 1 == words.size() ? " or " : ", ") + words[i];
  values.reject(name, fmt::format("must be {}", all));
}

std::optional<std::set<int>> read_shown_local_ranks(const OptionValues& values) {
  const std::string given = values.text("local-ranks-filter", "");
  if (given.empty() || given == "all") return std::nullopt;
  std::set<int> ranks;
  for (const std::string_view part : base::split(given, ',')) {
    const auto rank = base::parse_integer(part);
    if (!rank || *rank < 0 || *rank >= rendezvous::rounds::kMostLocalRanks)
      values.reject("local-ranks-filter", "must be local ranks with commas: 0,2");
    ranks.insert(static_cast<int>(*rank));
  }
  return ranks;
}

void read_template(const OptionValues& values, const base::Environment& environment,
                   CalledAs called_as, OutputOptions& options) {
  options.own_tag_template = TagTemplate::parse(kOurTag, TagTemplate::Unknown::kRefused);
  options.tee_tag_template = TagTemplate::parse(is_torchs_name(called_as) ? kTorchrunsTag : kOurTag,
                                                TagTemplate::Unknown::kRefused);
  options.tag_template = TagTemplate::parse(environment.get(kPrefixVariable).value_or(""),
                                            TagTemplate::Unknown::kLeft);
  if (!values.has("tag-template")) return;
  try {
    options.tag_template =
        TagTemplate::parse(values.get("tag-template").value, TagTemplate::Unknown::kRefused);
  } catch (const Error& error) {
    values.reject("tag-template", error.summary());
  }
}

bool is_yes(const std::string& text) {
  return !text.empty() && text != "0" && text != "false";
}

// Of the terminal, if there is one.
bool has_control_codes(const base::Environment& environment) {
  const std::string terminal = environment.get("TERM").value_or("");
  return !terminal.empty() && terminal != "dumb";
}

// What is wanted on the command line; then NO_COLOR; then what demands colour; then the terminal.
Colouring read_colouring(const OptionValues& values, const base::Environment& environment) {
  const auto wish = static_cast<Colouring>(read_word(values, "color", {"auto", "always", "never"}));
  if (wish != Colouring::kOnTerminal || values.has("color")) return wish;
  const auto text = [&](const char* name) { return environment.get(name).value_or(""); };
  if (!text("NO_COLOR").empty()) return Colouring::kNever;
  if (is_yes(text("FORCE_COLOR")) || is_yes(text("CLICOLOR_FORCE"))) return Colouring::kAlways;
  const bool unwanted = environment.get("FORCE_COLOR").value_or("1") == "0" ||
                        environment.get("CLICOLOR").value_or("1") == "0";
  return unwanted || !has_control_codes(environment) ? Colouring::kNever : Colouring::kOnTerminal;
}

std::optional<int> read_stdin_rank(const OptionValues& values) {
  if (values.text("stdin", "none") == "none") return std::nullopt;
  if (!base::parse_integer(values.get("stdin").value))
    values.reject("stdin", "must be a rank or none");
  return values.integer("stdin", 0, 0, INT_MAX);
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

OutputOptions read_output_options(const OptionValues& values, const base::Environment& environment,
                                  CalledAs called_as) {
  OutputOptions options;
  options.redirects = read_streams(values, "redirects");
  options.tee = read_streams(values, "tee");
  options.log_dir = values.text("log-dir", "");
  options.shown_local_ranks = read_shown_local_ranks(values);
  options.stdout_filters = split_filters(values.text("duplicate-stdout-filters", ""));
  options.stderr_filters = split_filters(values.text("duplicate-stderr-filters", ""));
  options.tagging = static_cast<Tagging>(read_word(values, "tag", {"auto", "always", "never"}));
  read_template(values, environment, called_as, options);
  options.colouring = read_colouring(values, environment);
  options.format = static_cast<LineFormat>(read_word(values, "log-format", {"text", "json"}));
  options.folding = values.has("fold") ? Folding::kSameLines : Folding::kNone;
  options.status = static_cast<StatusWish>(read_word(values, "status", {"auto", "never"}));
  options.control_codes = has_control_codes(environment);
  if (!options.control_codes) options.status = StatusWish::kNever;
  options.stdin_rank = read_stdin_rank(values);
  options.stdin_is_given = values.has("stdin");
  options.closed_output =
      static_cast<ClosedOutput>(read_word(values, "on-closed-output", {"stop", "ignore"}));
  if (options.folding != Folding::kNone && options.format == LineFormat::kJson)
    throw Error(ErrorCode::kUsage, "--fold and --log_format=json exclude each other",
                "an object of JSON is one rank's line", "leave one of them out");
  return options;
}

}  // namespace dtrun::launcher
