#include "ranks/containment.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"
#include "ranks/own_cgroup.h"

namespace dtrun::launcher {

Containment Containment::choose(ContainmentWish wish) {
  Containment result;
  if (wish == ContainmentWish::kGuard) {
    result.why_no_cgroup_ = "--containment=guard";
    return result;
  }
  const CgroupPlace place = OwnCgroup().place();
  if (wish != ContainmentWish::kCgroup && place.of_slurm) {
    result.why_no_cgroup_ = "Slurm would not see the ranks in one below its own";
  } else {
    try {
      result.cgroup_.emplace(JobCgroup::make(place));  // tries it with a child, so it comes first
    } catch (const base::Error& error) {
      if (wish == ContainmentWish::kCgroup) throw;
      result.why_no_cgroup_ = error.why();
    }
  }
  if (wish == ContainmentWish::kNamespace) result.make_namespace();
  return result;
}

void Containment::make_namespace() {
  try {
    namespace_.emplace(PidNamespace::make());
  } catch (const base::Error&) {
    remove(base::Deadline::never());
    throw;
  }
}

void Containment::enter() const {
  if (namespace_) namespace_->enter();
}

pid_t Containment::number_outside(pid_t pid, int pidfd) const {
  const pid_t outside = namespace_ ? namespace_->number_outside(pidfd) : 0;
  return outside != 0 ? outside : pid;
}

std::string Containment::describe() const {
  const std::string reapers =
      "agent, keeper and guard are each the reaper of all processes below them, and the ranks die "
      "with the guard (parent-death signal). Its limit: when all three are killed at the same "
      "instant, a process that a rank has detached can outlive them";
  if (namespace_)
    return fmt::format("containment: {}. Besides, {}", namespace_->describe(),
                       cgroup_ ? fmt::format("cgroup {}, which is killed as one", cgroup_->folder())
                               : fmt::format("no cgroup: {}", why_no_cgroup_));
  if (!cgroup_)
    return fmt::format("containment: guard: {} (no cgroup: {})", reapers, why_no_cgroup_);
  return fmt::format("containment: cgroup {}, which is killed as one; besides, {}",
                     cgroup_->folder(), reapers);
}

base::UniqueFd Containment::make_birthplace() const {
  return cgroup_ ? cgroup_->make_round() : base::UniqueFd();
}

void Containment::remove_birthplace() const {
  if (cgroup_) cgroup_->remove_rounds();
}

void Containment::kill() const {
  if (cgroup_) cgroup_->kill();
}

void Containment::remove(base::Deadline deadline) const {
  if (cgroup_) remove_job_cgroup(cgroup_->folder(), deadline);
}

}  // namespace dtrun::launcher
