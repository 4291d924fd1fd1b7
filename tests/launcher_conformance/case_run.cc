#include "case_run.h"

#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "dtrun/base/socket.h"
#include "support/command.h"
#include "support/own_port.h"

extern char** environ;

namespace dtrun::launcher_conformance {
namespace {

namespace fs = std::filesystem;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;

// torchrun is told by a variable, so that the command lines stay the same.
constexpr const char* kPortForTorchrun = "PET_MASTER_PORT";

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Names under which this machine may give itself out.
std::vector<std::string> own_names() {
  std::vector<std::string> names = {base::host_name()};
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_CANONNAME;
  if (::getaddrinfo(names[0].c_str(), nullptr, &hints, &found) == 0) {
    if (found->ai_canonname != nullptr) names.emplace_back(found->ai_canonname);
    ::freeaddrinfo(found);
  }
  names.emplace_back("localhost");
  return names;
}

class CaseRun {
 public:
  CaseRun(const Case& a_case, const Launcher& launcher) : case_(a_case), launcher_(launcher) {
    std::string folder = fs::temp_directory_path() / "dtrun_conformance_XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) ::abort();
    around_.folder = folder;
    around_.sources = DTRUN_CONFORMANCE_SOURCES;
    around_.worker = DTRUN_CONFORMANCE_WORKER;
    for (const char* inner : {"/ranks", "/tmp", "/logs"}) fs::create_directory(folder + inner);
    around_.port = port_.text();
    around_.host_names = own_names();
    set_environment();
  }
  ~CaseRun() {
    std::error_code ignored;  // the case has been seen
    fs::remove_all(around_.folder, ignored);
  }
  CaseRun(const CaseRun&) = delete;
  CaseRun& operator=(const CaseRun&) = delete;

  Facts run() {
    std::vector<std::unique_ptr<Command>> agents;
    for (const auto& arguments : case_.agents)
      agents.push_back(std::make_unique<Command>(command_line(arguments), options_));
    if (case_.stop_signal != 0) {
      for (int i = 0; i < case_.ranks_up; ++i) agents[0]->next_line("up");
      ::kill(agents[0]->pid(), case_.stop_signal);
    }
    std::vector<CommandResult> results;
    for (const auto& agent : agents) results.push_back(agent->finish());
    return facts_of(results);
  }

 private:
  void set_environment() {
    options_.limit = std::chrono::seconds(100);
    options_.folder = around_.folder;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const std::string name = text.substr(0, text.find('='));
      const bool of_a_job = name.starts_with("TORCH") || name.starts_with("PET_") ||
                            name.starts_with("SLURM") || name == "OMP_NUM_THREADS" ||
                            name == "CUDA_VISIBLE_DEVICES";
      if (of_a_job) options_.environment[name] = std::nullopt;
      if (!of_a_job) around_.environment[name] = text.substr(text.find('=') + 1);
    }
    for (const char* name :
         {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
      around_.environment.erase(name);
    // Python gives itself LC_CTYPE where no locale is set.
    std::map<std::string, std::string> own = {{"TMPDIR", around_.folder + "/tmp"},
                                              {"LC_ALL", "C.UTF-8"}};
    for (const auto& [name, value] : case_.environment) own[name] = filled_in(value);
    // Where none is named torchrun takes 29500, which only one job of a machine can have.
    if (!launcher_.is_dtrun && case_.name != "default") own[kPortForTorchrun] = around_.port;
    for (const auto& [name, value] : own) {
      options_.environment[name] = value;
      if (name != kPortForTorchrun) around_.environment[name] = value;
    }
  }

  std::string filled_in(std::string text) const {
    const std::pair<const char*, std::string> places[] = {
        {"$PYTHON", launcher_.python},
        {"$WORKER", DTRUN_CONFORMANCE_WORKER},
        {"$SCRIPT", DTRUN_CONFORMANCE_SOURCES "/script.py"},
        {"$SOURCES", DTRUN_CONFORMANCE_SOURCES},
        {"$FOLDER", around_.folder},
        {"$PORT", around_.port}};
    for (const auto& [place, value] : places)
      if (const auto at = text.find(place); at != std::string::npos)
        text.replace(at, std::string(place).size(), value);
    return text;
  }

  std::vector<std::string> command_line(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = launcher_.command;
    if (launcher_.is_dtrun)
      words.insert(words.end(), case_.of_dtrun_alone.begin(), case_.of_dtrun_alone.end());
    for (const std::string& argument : arguments) words.push_back(filled_in(argument));
    return words;
  }

  // What a script that started the job can tell by its end.
  std::string class_of(const CommandResult& result) const {
    const int signal = result.exit_code > 128 ? result.exit_code - 128 : result.signal;
    if (result.exit_code == 0) return "success";
    if (case_.stop_signal != 0 && signal == case_.stop_signal) return "stopped";
    return result.exit_code == (launcher_.is_dtrun ? 64 : 2) ? "usage" : "failure";
  }

  Facts facts_of(const std::vector<CommandResult>& results) const {
    Facts facts;
    std::string standard_error;
    std::vector<std::string> lines;
    for (const CommandResult& result : results) {
      append(facts["exit class"], class_of(result));
      append(facts["exit"], result.signal != 0 ? "signal " + std::to_string(result.signal)
                                               : std::to_string(result.exit_code));
      standard_error += result.err;
      const auto own = result.sorted_lines();
      lines.insert(lines.end(), own.begin(), own.end());
    }
    if (case_.ranks_up == 0) add_lines(facts, "out", lines);
    add_ranks(facts);
    add_table(standard_error, around_, facts);
    add_streams(facts, standard_error);
    add_files(facts);
    return facts;
  }

  static void append(std::string& list, const std::string& item) {
    list += (list.empty() ? "" : " | ") + item;
  }

  void add_lines(Facts& facts, const std::string& fact, std::vector<std::string> lines) const {
    std::sort(lines.begin(), lines.end());
    for (const std::string& line : lines) facts[fact] += normal_path(line, around_) + "\n";
  }

  // Of what the launcher says itself only what users look for.
  void add_streams(Facts& facts, const std::string& standard_error) const {
    const bool warned = standard_error.find("Setting OMP_NUM_THREADS") != std::string::npos;
    facts["warns of OMP_NUM_THREADS"] = warned ? "yes" : "no";
    std::vector<std::string> lines;
    std::size_t begin = 0;
    for (auto end = standard_error.find('\n'); end != std::string::npos;
         begin = end + 1, end = standard_error.find('\n', begin))
      if (const std::string line = standard_error.substr(begin, end - begin);
          line.find("err of ") != std::string::npos && line.find('|') == std::string::npos)
        lines.push_back(line);
    add_lines(facts, "err", lines);
  }

  void add_ranks(Facts& facts) const {
    std::map<std::string, RankRecord> ranks;
    for (const auto& entry : fs::directory_iterator(around_.folder + "/ranks")) {
      const std::string name = entry.path().filename();
      append_rank(ranks, name, read_rank_record(content_of(entry.path())));
    }
    std::string names;
    for (const auto& [name, record] : ranks) append(names, name);
    facts["files"] = names;
    for (auto& [name, record] : ranks) record.environment.erase(kPortForTorchrun);
    add_environment(ranks, around_, case_.numbering, facts);
  }

  static void append_rank(std::map<std::string, RankRecord>& ranks, const std::string& name,
                          RankRecord record) {
    ranks[name] = std::move(record);
  }

  void add_files(Facts& facts) const {
    if (case_.environment.contains("TORCHELASTIC_ERROR_FILE"))
      facts["error file"] = normal_error_file(content_of(around_.folder + "/error.json"));
    for (const auto& entry : fs::recursive_directory_iterator(around_.folder + "/logs")) {
      const std::string path =
          normal_path(entry.path().string() + (entry.is_directory() ? "/" : ""), around_);
      facts["file " + path] =
          entry.is_directory() ? "(folder)" : normal_path(content_of(entry.path()), around_);
    }
  }

  const Case& case_;
  const Launcher& launcher_;
  Surroundings around_;
  testing_support::OwnPort port_;
  CommandOptions options_;
};

}  // namespace

Facts run_case(const Case& a_case, const Launcher& launcher) {
  return CaseRun(a_case, launcher).run();
}

}  // namespace dtrun::launcher_conformance
