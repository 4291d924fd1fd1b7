// OptionNames: how the options of the table are spelled, and found by what somebody has written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/error.h"
#include "options/option_table.h"

namespace dtrun::launcher {

/// "--nproc_per_node": how messages and help write it.
std::string spelling_of(const OptionRow& row);
/// "PET_NPROC_PER_NODE" for the prefix "PET_".
std::string variable_of(const OptionRow& row, std::string_view prefix);
/// The words that its value may be: {"cpu", "gpu", "auto"} of "N|cpu|gpu|auto".
std::vector<std::string_view> choices_of(const OptionRow& row);

/// Its help, with the default.
std::string text_of(const OptionRow& row);

/// What an option demands behind its name.
enum class ValueDemand { kNone, kOptional, kNeeded };
ValueDemand demand_of(const OptionRow& row);

/// The option of that whole name, '-' and '_' being the same; nullptr: none.
const OptionRow* find_exactly(std::string_view name);
/// Also by a beginning that is unique among torchrun's options, or among all.
/// @param word for the message: as it was written
/// @throws Error kUsage: unknown, with the nearest name; or ambiguous
const OptionRow& find_option(const std::string& word, std::string_view name);
/// kUsage, with the nearest name.
base::Error unknown_option(const std::string& word, std::string_view name);
/// @throws Error kUsage
const OptionRow& find_letter(const std::string& word, char letter);

}  // namespace dtrun::launcher
