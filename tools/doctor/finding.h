// Finding: what dtrun-doctor says of one property of this machine: what it is, what that means for
// a job, and what to do.
#pragma once

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

}  // namespace dtrun::doctor
