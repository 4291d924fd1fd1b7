#include "doctor/finding.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <iterator>

#include "dtrun/base/error.h"
#include "dtrun/base/utf8.h"

namespace dtrun::doctor {
namespace {

namespace json = boost::json;

constexpr Verdict kVerdicts[] = {Verdict::good, Verdict::warning, Verdict::bad};

}  // namespace

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::good:
      return "ok";
    case Verdict::warning:
      return "warning";
    case Verdict::bad:
      return "bad";
  }
  return "";
}

std::string findings_text(const std::string& host, const Findings& findings, bool only_faults) {
  const std::string begin = host + ": ";
  std::string text;
  for (const Finding& finding : findings) {
    if (only_faults && finding.verdict == Verdict::good) continue;
    text += fmt::format("{}{:8} {:22} {}\n", begin, name_of(finding.verdict), finding.subject,
                        finding.found);
    if (!finding.meaning.empty()) text += fmt::format("{}{:31} {}\n", begin, "", finding.meaning);
    if (!finding.remedy.empty())
      text += fmt::format("{}{:31} try: {}\n", begin, "", finding.remedy);
  }
  const auto count = [&](Verdict verdict) {
    return std::ranges::count(findings, verdict, &Finding::verdict);
  };
  return text + fmt::format("{}{} ok, {} warnings, {} bad\n", begin, count(Verdict::good),
                            count(Verdict::warning), count(Verdict::bad));
}

json::array findings_to_json(const Findings& findings) {
  json::array list;
  for (const Finding& finding : findings)
    list.push_back(json::object{{"subject", finding.subject},
                                {"verdict", name_of(finding.verdict)},
                                {"found", base::as_utf8(finding.found)},
                                {"meaning", base::as_utf8(finding.meaning)},
                                {"remedy", base::as_utf8(finding.remedy)}});
  return list;
}

Findings findings_of_json(const json::value& list) {
  try {
    Findings findings;
    for (const json::value& one : list.as_array()) {
      const auto text = [&](const char* name) { return std::string(one.at(name).as_string()); };
      const auto verdict = std::ranges::find(kVerdicts, text("verdict"), name_of);
      findings.push_back({text("subject"),
                          verdict == std::end(kVerdicts) ? Verdict::warning : *verdict,
                          text("found"), text("meaning"), text("remedy")});
    }
    return findings;
  } catch (const std::exception& error) {
    throw base::Error(base::ErrorCode::kProtocol, "findings that are none", error.what());
  }
}

}  // namespace dtrun::doctor
