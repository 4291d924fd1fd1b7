// dtrun-explain: says what the records of a job's last operations mean: who has not come where. It
// reads files only, and needs neither the job nor the ranks.
#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/base/json.h"
#include "dtrun/rendezvous/flight_explanation.h"
#include "dtrun/rendezvous/flight_record.h"
#include "dtrun/rendezvous/flight_trace.h"
#include "explain/pickle_data.h"
#include "explain/torch_flight.h"
#include "tool_main.h"

namespace dtrun::explain {
namespace {

using base::Error;
using base::ErrorCode;
using rendezvous::FlightFinding;
using rendezvous::FlightRecord;
using rendezvous::RankFlight;
namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::uintmax_t kMostBytes = std::uintmax_t{1} << 30;
/// How many operations of each rank --last shows.
constexpr int kMostShown = 256;

enum class Form { kText, kJson };

struct Options {
  std::vector<std::string> paths;
  int round = -1;  ///< -1: the last
  int last = 0;
  Form form = Form::kText;
  std::string trace;  ///< where the joined trace goes; empty: flight records are explained
};

/// What the files of one round say together.
struct Round {
  std::string job;
  int number = 0;
  int world_size = 0;
  double written = 0;
  std::string cause;
  std::vector<RankFlight> ranks;
};

std::string content_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    throw Error(ErrorCode::kNotFound, fmt::format("there is no file {}", path.string()), "",
                "name a folder of flight records, or such files");
  if (fs::file_size(path, error) > kMostBytes || error)
    throw Error(ErrorCode::kProtocol,
                fmt::format("{} is too large for a flight record", path.string()));
  std::ifstream file(path, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && !file.eof())
    throw Error(ErrorCode::kSystem, fmt::format("{} cannot be read", path.string()));
  return content;
}

/// In a folder lie also logs, and files of other programs: what is no record is passed over there.
enum class Others { kRefused, kPassedOver };

/// nullopt: it is none, of those that are passed over.
std::optional<FlightRecord> record_of(const fs::path& path, Others others) {
  const std::string content = content_of(path);
  const std::string name = path.string();
  const bool is_pickle = looks_like_pickle(content);
  const auto first = content.find_first_not_of(" \t\r\n");
  if (others == Others::kPassedOver && !is_pickle &&
      (first == std::string::npos || content[first] != '{'))
    return std::nullopt;
  const json::value document =
      is_pickle ? parse_pickle(content, name) : base::parse_json(content, name);
  if (is_torch_flight(document)) {
    FlightRecord record;
    record.ranks = {torch_flight_of(document, name)};
    return record;
  }
  const bool is_ours = document.is_object() && document.get_object().contains("format");
  if (!is_ours && others == Others::kPassedOver) return std::nullopt;
  return rendezvous::flight_record_of(document, name);
}

void read_file(const fs::path& path, Others others, std::vector<FlightRecord>& records) {
  try {
    if (std::optional<FlightRecord> record = record_of(path, others))
      records.push_back(std::move(*record));
  } catch (const Error& error) {
    if (others == Others::kRefused) throw;
    fmt::print(stderr, "dtrun-explain: warning: passed over: {}\n", error.summary());
  }
}

std::vector<FlightRecord> read_all(const std::vector<std::string>& paths) {
  std::vector<FlightRecord> records;
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      read_file(path, Others::kRefused, records);
      continue;
    }
    std::vector<fs::path> files;
    for (const auto& entry :
         fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied))
      if (entry.is_regular_file() && entry.path().extension() != ".log")
        files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) read_file(file, Others::kPassedOver, records);
  }
  if (records.empty())
    throw Error(ErrorCode::kNotFound,
                fmt::format("there is no flight record in {}", fmt::join(paths, ", ")), "",
                "dtrun writes them when a round fails, with --flight-recorder=FOLDER or --log-dir");
  return records;
}

/// The newest job's, where a folder has those of several.
Round choose_round(std::vector<FlightRecord> records, int number) {
  const auto newest = std::max_element(
      records.begin(), records.end(),
      [](const FlightRecord& a, const FlightRecord& b) { return a.written < b.written; });
  Round round;
  round.job = newest->job;
  round.number = number >= 0 ? number : newest->round;
  for (FlightRecord& record : records) {
    if (record.job != round.job || record.round != round.number) continue;
    round.world_size = std::max(round.world_size, record.world_size);
    round.written = std::max(round.written, record.written);
    if (round.cause.empty()) round.cause = record.cause;
    std::move(record.ranks.begin(), record.ranks.end(), std::back_inserter(round.ranks));
  }
  if (round.ranks.empty())
    throw Error(ErrorCode::kNotFound, fmt::format("there is no record of round {}", round.number),
                "", "leave --round away: the last one is explained then");
  std::sort(round.ranks.begin(), round.ranks.end(),
            [](const RankFlight& a, const RankFlight& b) { return a.rank < b.rank; });
  return round;
}

void print_text(const Round& round, const std::vector<FlightFinding>& findings, int last) {
  std::vector<int> ranks;
  for (const RankFlight& flight : round.ranks) ranks.push_back(flight.rank);
  if (!round.job.empty())
    fmt::print("job {}, round {}: {}\n", round.job, round.number,
               rendezvous::rank_list_text(ranks));
  if (!round.cause.empty()) fmt::print("it ended: {}\n", round.cause);
  for (const FlightFinding& finding : findings) fmt::print("{}\n", finding.text);
  if (findings.empty()) fmt::print("nobody waits: each rank's last operation is over\n");
  for (const RankFlight& flight : round.ranks) {
    if (last == 0) break;
    fmt::print("rank {} ({} operations, the last {}):\n", flight.rank, flight.begun,
               std::min<std::size_t>(static_cast<std::size_t>(last), flight.operations.size()));
    const std::size_t count = flight.operations.size();
    for (std::size_t i = count - std::min<std::size_t>(count, static_cast<std::size_t>(last));
         i < count; ++i)
      fmt::print("  {:7} {}\n", rendezvous::flight_state_name(flight.operations[i].state),
                 rendezvous::describe(flight.operations[i]));
  }
}

std::string_view kind_name(FlightFinding::Kind kind) {
  switch (kind) {
    case FlightFinding::Kind::differing:
      return "differing";
    case FlightFinding::Kind::missing:
      return "missing";
    case FlightFinding::Kind::behind:
      return "behind";
    case FlightFinding::Kind::circle:
      return "circle";
    case FlightFinding::Kind::waiting:
      return "waiting";
    case FlightFinding::Kind::unknown:
      return "unknown";
    case FlightFinding::Kind::together:
      return "together";
  }
  return "";
}

void print_json(const Round& round, const std::vector<FlightFinding>& findings) {
  json::array list;
  for (const FlightFinding& finding : findings)
    list.push_back(json::object{{"kind", kind_name(finding.kind)},
                                {"text", finding.text},
                                {"ranks", json::array(finding.ranks.begin(), finding.ranks.end())},
                                {"group", finding.group},
                                {"sequence", finding.sequence}});
  fmt::print("{}\n", json::serialize(json::object{{"job", round.job},
                                                  {"round", round.number},
                                                  {"cause", round.cause},
                                                  {"findings", std::move(list)}}));
}

void join_traces(const Options& options) {
  std::vector<rendezvous::FlightTrace> parts;
  for (const std::string& path : options.paths)
    parts.push_back(rendezvous::flight_trace_of(base::parse_json(content_of(path), path), path));
  const rendezvous::FlightTrace all = rendezvous::joined(std::move(parts));
  base::write_file_atomically(options.trace, rendezvous::to_json(all));
  for (const rendezvous::TraceClock& clock : all.clocks)
    fmt::print("node {}: {} ms added to its times{}\n", clock.node,
               static_cast<double>(clock.shift_ns) / 1e6,
               clock.uncertainty_ns  ? fmt::format(", right to {} ms",
                                                   static_cast<double>(*clock.uncertainty_ns) / 1e6)
               : clock.shift_ns == 0 ? ""
                                     : ", as the wall clocks say");
}

int run(int argc, char** argv) {
  CLI::App app(
      "dtrun-explain says who was missing where, from the flight records that dtrun writes when a "
      "round fails, or from those of PyTorch (pickle or JSON, one file a rank).");
  app.name("dtrun-explain");
  app.set_version_flag("--version", "dtrun-explain " DTRUN_VERSION);
  Options options;
  app.add_option("PATH", options.paths, "folders of records, or files")->required();
  CLI::Option* const round_number =
      app.add_option("--round", options.round, "which round is explained; none: the last")
          ->check(CLI::NonNegativeNumber)
          ->type_name("N");
  CLI::Option* const last =
      app.add_option("--last", options.last, "also shows the last N operations of each rank")
          ->check(CLI::Range(0, kMostShown))
          ->type_name("N");
  CLI::Option* const json_wanted = app.add_flag_callback(
      "--json", [&] { options.form = Form::kJson; }, "an object for programs");
  app.add_option("--trace", options.trace,
                 "joins the traces of several nodes, PATH..., in this file, and explains nothing")
      ->excludes(round_number)
      ->excludes(last)
      ->excludes(json_wanted)
      ->type_name("FILE");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::kUsage, error.what(), "", "dtrun-explain --help");
  }
  if (!options.trace.empty()) {
    join_traces(options);
    return 0;
  }
  const Round round = choose_round(read_all(options.paths), options.round);
  const std::vector<FlightFinding> findings =
      rendezvous::explain_flights(round.ranks, round.world_size, round.written);
  if (options.form == Form::kJson)
    print_json(round, findings);
  else
    print_text(round, findings, options.last);
  return 0;
}

}  // namespace
}  // namespace dtrun::explain

int main(int argc, char** argv) {
  return dtrun::tools::tool_main("dtrun-explain", dtrun::explain::run, argc, argv);
}
