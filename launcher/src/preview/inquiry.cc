#include "preview/inquiry.h"

#include "options/completion.h"
#include "options/help_text.h"
#include "options/option_binding.h"
#include "options/option_names.h"
#include "options/option_reference.h"
#include "options/version.h"
#include "sources/config_report.h"

namespace dtrun::launcher {
namespace {

// "redirects", "--redirects" and "-r" are the same option.
const OptionRow& row_about(const std::string& about) {
  const std::string word = "--help=" + about;
  const bool is_letter = about.size() == 2 && about[0] == '-' && about[1] != '-';
  return is_letter ? find_letter(word, about[1])
                   : find_option(word, about.starts_with("--") ? about.substr(2) : about);
}

}  // namespace

std::optional<std::string> answer_to_inquiry(const CommandLine& line) {
  if (line.has("help")) {
    const std::string& about = line.get("help").value;
    return about == "1" ? help_text() : help_text(row_about(about));
  }
  if (line.has("version")) return version_text();
  std::string (*text)() = nullptr;
  std::string (*report)(const CommandLine&) = nullptr;
  OptionBinding binding(line);
  binding.choice("completion", text, {{"bash", bash_completion}});
  binding.choice("reference", text, {{"man", manual_page}, {"markdown", option_markdown}});
  binding.choice("print-config", report, {{"1", config_report}, {"json", config_report_json}});
  if (text != nullptr) return text();
  if (report != nullptr) return report(line);
  return std::nullopt;
}

}  // namespace dtrun::launcher
