#include "dtrun/dtensor/checkpoint/series.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>
#include <sstream>

#include "checkpoint/agreement_of.h"
#include "checkpoint/commit.h"
#include "checkpoint/shard_file.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;
namespace log = base::log;

namespace {

constexpr std::string_view kStep = "step-";

/// "step-100", and not "step-0100".
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kStep.size(), end, step);
  if (error != std::errc() || stop != end || step < 0 ||
      name != std::string(kStep) + std::to_string(step))
    return std::nullopt;
  return step;
}

/// What another checkpoint may do without.
bool is_damage(const Error& error) {
  return error.code() == ErrorCode::kProtocol || error.code() == ErrorCode::kNotFound ||
         error.code() == ErrorCode::kSystem;
}

}  // namespace

Series::Series(std::string folder, SeriesOptions options)
    : folder_(std::move(folder)), options_(std::move(options)) {
  if (options_.keep < 0)
    throw Error(ErrorCode::kInvalidArgument,
                "a series that keeps " + std::to_string(options_.keep) + " checkpoints", "",
                "numbers from 1, or 0: all");
}

FileCalls& Series::files() const {
  return options_.files != nullptr ? *options_.files : system_;
}

std::string Series::path(std::int64_t step) const {
  return path_in(folder_, std::string(kStep) + std::to_string(step));
}

std::vector<std::int64_t> Series::steps() const {
  std::vector<std::int64_t> steps;
  if (!leads_to_folder(files(), folder_)) return steps;
  for (const std::string& name : names_in(files(), folder_)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

// As a save begins; the name is none of a step's.
void Series::check_folder() {
  const std::unique_ptr<Agreement> own = agreement_of(options_.group, options_.agreement);
  Agreement& agreement = own ? *own : *options_.agreement;
  const std::string target = path_in(checked_folder(folder_), "write-check");
  std::unique_ptr<PartialFolder> partial;
  try {
    const std::string generation = together(agreement, [&]() -> std::string {
      if (agreement.rank() != 0) return "";
      const std::uint64_t number = random_generation();
      partial = std::make_unique<PartialFolder>(files(), target, number, Existing::refuse);
      return std::to_string(number);
    })[0];
    together(agreement, [&]() -> std::string {
      const std::string path = partial_name(target, std::stoull(generation));
      if (!is_folder(files(), path))
        throw Error(ErrorCode::kNotFound, "this rank does not see " + path,
                    "rank 0 has made it; their file systems are not the same one",
                    "a folder that all nodes share");
      OpenFile file =
          OpenFile::create(files(), path_in(path, shard_name(agreement.rank(), agreement.size())));
      file.write(std::string(kDirectBytes, '\0'));
      file.sync();
      file.close();
      return "";
    });
  } catch (const Error& error) {
    partial.reset();  // where nobody catches it nothing is unwound
    throw Error(error.code(), "no checkpoint can be saved to " + folder_ + ": " + error.summary(),
                error.why(), error.remedy());
  }
}

SaveReport Series::save(std::int64_t step, const State& state) {
  const SaveReport report = dcp::save(path(step), state,
                                      {.group = options_.group,
                                       .agreement = options_.agreement,
                                       .existing = Existing::replace,
                                       .files = options_.files});
  const std::unique_ptr<Agreement> own = agreement_of(options_.group, options_.agreement);
  if ((own ? *own : *options_.agreement).rank() == 0) prune(step);
  return report;
}

void Series::async_save(std::int64_t step, const State& state, AsyncSaver& saver, Staging staging) {
  const auto then = [this, step, prunes = saver.rank() == 0] {
    if (prunes) prune(step);
  };
  saver.save(
      path(step), state,
      {.existing = Existing::replace, .files = options_.files, .staging = staging, .then = then});
}

// Those after the saved one are not newer: the training has gone back behind them, as it does where
// they are damaged. The name goes first: what is half removed is no checkpoint that somebody might
// take for damaged.
void Series::prune(std::int64_t saved) {
  try {
    std::vector<std::int64_t> old = steps();
    std::erase_if(old, [&](std::int64_t step) { return step > saved; });
    const auto kept = static_cast<std::size_t>(options_.keep);
    old.resize(kept == 0 || old.size() <= kept ? 0 : old.size() - kept);
    for (const std::int64_t step : old) {
      if (!may_be_removed(files(), path(step))) {
        log::warning(log::Component::kDtensor, "{} stays: it is not a checkpoint alone",
                     path(step));
        continue;
      }
      const std::string hidden = partial_name(path(step), 0);
      if (files().rename(path(step), hidden) < 0) throw base::system_error("remove " + path(step));
      remove_folder(files(), hidden);
    }
    std::set<std::string> left;
    for (const std::string& name : names_in(files(), folder_)) {
      if (is_partial_name(name, "") && name.starts_with("." + std::string(kStep)))
        left.insert(name.substr(1, name.rfind('.', name.rfind('.') - 1) - 1));
    }
    for (const std::string& name : left) remove_stale(files(), folder_, name);
  } catch (const Error& error) {
    log::warning(log::Component::kDtensor, "old checkpoints stay in {}: {}", folder_, error.what());
  }
}

std::optional<std::int64_t> Series::load_last(const State& state) {
  const std::unique_ptr<Agreement> own = agreement_of(options_.group, options_.agreement);
  Agreement& agreement = own ? *own : *options_.agreement;
  // What rank 0 sees; another rank that does not is told of at the load.
  const std::string listed = together(agreement, [&] {
    std::string list;
    if (agreement.rank() != 0) return list;
    for (const std::int64_t step : steps()) list = std::to_string(step) + " " + list;
    return list;
  })[0];
  std::istringstream list(listed);
  std::optional<Error> last;
  for (std::int64_t step = 0; list >> step;) {
    try {
      dcp::load(path(step), state, {.agreement = &agreement, .files = options_.files});
      return step;
    } catch (const Error& error) {
      if (!is_damage(error)) throw;
      last = error;
      if (agreement.rank() == 0)
        log::warning(log::Component::kDtensor, "{} is passed over: {}", path(step), error.what());
    }
  }
  if (last) throw *last;
  return std::nullopt;
}

}  // namespace dtrun::dtensor::dcp
