// Finding: what dtrun-doctor says of one property of a machine: what it is, what that means for a
// job, and what to do. As text, and as JSON, which one dtrun-doctor tells another.
#pragma once

#include <boost/json/array.hpp>
#include <string>
#include <vector>

namespace dtrun::doctor {

/// `warning`: some jobs fail or are slow; `bad`: most jobs fail.
enum class Verdict { good, warning, bad };

struct Finding {
  std::string subject;  ///< "open files"
  Verdict verdict = Verdict::good;
  std::string found;         ///< "1048576"
  std::string meaning = {};  ///< for a job; of good ones, too, where it is no matter of course
  std::string remedy = {};   ///< of those that are not good
};
using Findings = std::vector<Finding>;

/// "ok", "warning", "bad"
const char* name_of(Verdict verdict);
/// Whole lines, each of which begins with the host, and the count of each verdict.
std::string findings_text(const std::string& host, const Findings& findings, bool only_faults);

boost::json::array findings_to_json(const Findings& findings);
/// @throws Error kProtocol
Findings findings_of_json(const boost::json::value& list);

}  // namespace dtrun::doctor
