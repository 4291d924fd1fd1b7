// Facts: what was seen of one run of a launcher, by name, as text that is the same in every run:
// ports, paths, ids, times and pids have given place to words. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace dtrun::launcher_conformance {

using Facts = std::map<std::string, std::string>;
/// Of each case, by its name.
using Record = std::map<std::string, Facts>;

/// What stands for what in this run.
struct Surroundings {
  std::string folder;   ///< of the run; written as $FOLDER
  std::string sources;  ///< of this suite, with its script; written as $SOURCES
  std::string worker;   ///< the program that the ranks run; written as $WORKER
  std::string port;     ///< that the run was given; written as PORT
  std::vector<std::string> host_names;
  std::map<std::string, std::string> environment;  ///< that the launcher was started with
};

/// What one rank left behind.
struct RankRecord {
  std::map<std::string, std::string> environment;
  std::vector<std::string> arguments;
};
RankRecord read_rank_record(const std::string& bytes);

/// Every variable that a rank has otherwise than the launcher had, and all of PET_*. Where the
/// ranks differ, their values in the order of `ranks`, with " | " between them; where their numbers
/// are dealt out by chance, sorted.
enum class Numbering { kFixed, kByChance };
void add_environment(const std::map<std::string, RankRecord>& ranks, const Surroundings& around,
                     Numbering numbering, Facts& facts);

/// The failure table in `standard_error`, line by line ("table.00"), or nothing.
void add_table(const std::string& standard_error, const Surroundings& around, Facts& facts);

/// A file that the launcher wrote as JSON: TIME for times, keys in order.
std::string normal_error_file(const std::string& text);

/// $FOLDER, $SOURCES and $WORKER, and RANDOM for made-up parts of names.
std::string normal_path(const std::string& path, const Surroundings& around);

std::string to_json(const Record& record);
Record from_json(const std::string& text);

}  // namespace dtrun::launcher_conformance
