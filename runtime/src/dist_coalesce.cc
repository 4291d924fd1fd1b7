#include "dtrun/runtime/dist_coalesce.h"

#include <exception>
#include <utility>

#include "dtrun/base/error.h"
#include "recording.h"

namespace dtrun::dist {

Coalesce::Coalesce(const ProcessGroup& group, Site site)
    : exceptions_(std::uncaught_exceptions()),
      recording_(std::make_unique<Recording>(chosen(group), site)) {}

Coalesce::~Coalesce() {
  if (recording_ == nullptr) return;
  if (std::uncaught_exceptions() == exceptions_) recording_->abort_group();
  recording_->close();
  recording_->drop(std::make_exception_ptr(
      base::Error(base::ErrorCode::kUsage, "the call was never started",
                  "its dist::Coalesce was left before end()", "call end() last in the scope")));
}

Work Coalesce::end() {
  if (recording_ == nullptr)
    throw base::Error(base::ErrorCode::kUsage, "end() of a dist::Coalesce that has ended", "",
                      "make a scope for each list of calls");
  recording_->require_own_thread();
  const std::unique_ptr<Recording> ended = std::move(recording_);
  ended->close();
  return ended->start_all();
}

}  // namespace dtrun::dist
