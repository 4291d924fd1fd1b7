// The option table: which options dtrun has. Parser, --help, man page, completion, docs/options.md,
// environment defaults, the configuration file and suggestions are all made from it.
#pragma once

#include <span>
#include <string_view>

namespace dtrun::launcher {

/// The headings of --help, in their order.
enum class OptionGroup {
  kRanks,     ///< how many, where
  kHosts,     ///< that dtrun starts itself on
  kMeeting,   ///< how nodes find each other
  kProgram,   ///< what is run, and how it is called
  kRestart,   ///< what happens after a failure
  kStop,      ///< signals, graces, exit codes
  kOutput,    ///< what is seen, what is kept
  kBinding,   ///< CPUs, memory, GPUs
  kEngine,    ///< who started dtrun
  kKnowing,   ///< asking dtrun what it is, does and will do
  kOfPython,  ///< torchrun's, without effect here
  kHidden,    ///< for the build and the tests
};

/// Where an option may be given.
enum class OptionReach {
  kEverywhere,       ///< command line, PET_NAME, DTRUN_NAME, configuration file
  kNotInFiles,       ///< command line and environment
  kCommandLineOnly,  ///< asked once, and never by a stray variable
};

/// The meaning of an option that is given several times.
enum class OptionRepeats { kLastWins, kAllCount };

struct OptionRow {
  const char* name;  ///< long spelling, with '-'
  char letter;       ///< short spelling; 0: none
  /// The name of the value in help. Alternatives stand between '|'; those in lower case are literal
  /// words, which completion offers. In brackets: needs '=', and may be left out. nullptr: a flag.
  const char* value;
  OptionGroup group;
  const char* help;                 ///< without the default
  const char* otherwise = nullptr;  ///< the default, as it would be written; nullptr: none
  OptionReach reach = OptionReach::kEverywhere;
  OptionRepeats repeats = OptionRepeats::kLastWins;
};

std::span<const OptionRow> option_table();

/// torchrun has it, too: its unique prefixes are prefixes of torchrun's options alone.
bool is_torchruns(const OptionRow& row);

std::string_view heading_of(OptionGroup group);

}  // namespace dtrun::launcher
