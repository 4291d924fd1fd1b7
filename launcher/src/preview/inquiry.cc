#include "preview/inquiry.h"

#include "options/completion.h"
#include "options/help_text.h"
#include "options/option_names.h"
#include "options/option_reference.h"
#include "options/option_values.h"
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
  const OptionValues values(line);
  if (values.has("help")) {
    const std::string about = values.text("help", "");
    return about == "1" ? help_text() : help_text(row_about(about));
  }
  if (values.has("version")) return version_text();
  if (values.has("completion")) {
    if (values.text("completion", "") != "bash") values.reject("completion", "must be bash");
    return bash_completion();
  }
  if (values.has("reference")) {
    const std::string form = values.text("reference", "");
    if (form != "man" && form != "markdown") values.reject("reference", "must be man or markdown");
    return form == "man" ? manual_page() : option_markdown();
  }
  if (!values.has("print-config")) return std::nullopt;
  const std::string form = values.text("print-config", "");
  if (form != "1" && form != "json") values.reject("print-config", "must be json, or left out");
  return form == "json" ? config_report_json(line) : config_report(line);
}

}  // namespace dtrun::launcher
