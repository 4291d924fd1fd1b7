#include "ranks/containment.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

constexpr char kProven = '+';
constexpr const char* kNoBirths = "processes cannot be born below this process's own cgroup";

}  // namespace

Containment Containment::choose(ContainmentWish wish) {
  Containment result;
  if (wish == ContainmentWish::kGuard) {
    result.why_no_cgroup_ = "--containment=guard";
    return result;
  }
  const CgroupPlace place = result.own_.place();
  if (wish != ContainmentWish::kCgroup && place.of_slurm) {
    result.why_no_cgroup_ = "Slurm would not see the ranks in one below its own";
  } else {
    try {
      base::Pipe proof;
      if (wish == ContainmentWish::kAuto) proof = base::make_pipe();
      result.cgroup_.emplace(JobCgroup::make(place));
      result.proof_ = std::move(proof);
      // Before a namespace is made, whose first child is the guard.
      if (wish != ContainmentWish::kAuto && !result.cgroup_->admits_births())
        result.refuse_births();
      if (wish == ContainmentWish::kCgroup && !result.cgroup_)
        throw base::Error(base::ErrorCode::kUnavailable, "no cgroup for the job", kNoBirths,
                          "allow clone3 in the sandbox (seccomp); where the cgroup has been killed "
                          "before, start dtrun in a new one");
    } catch (const base::Error& error) {
      if (wish == ContainmentWish::kCgroup) throw;
      result.why_no_cgroup_ = error.why();
    }
  }
  if (wish == ContainmentWish::kNamespace) result.make_namespace();
  return result;
}

void Containment::refuse_births() {
  cgroup_->kill();
  remove_job_cgroup(cgroup_->folder(), base::Deadline::after(kKillPatience));
  cgroup_.reset();
  why_no_cgroup_ = kNoBirths;
}

void Containment::prove(const std::function<void()>& on_decided) {
  const bool asked = proof_.write_end.valid();
  if (asked && !cgroup_->admits_births()) refuse_births();
  on_decided();
  if (asked && cgroup_) (void)!::write(proof_.write_end.get(), &kProven, 1);
  proof_ = {};
}

void Containment::await_proof() {
  proof_.write_end.reset();
  if (!proof_.read_end) return;
  const auto deadline = base::Deadline::after(kKillPatience);
  pollfd word{proof_.read_end.get(), POLLIN, 0};
  while (::poll(&word, 1, deadline.poll_timeout_ms()) < 0 && errno == EINTR) {
  }
  char said = 0;
  births_ = (word.revents & POLLIN) != 0 && ::read(word.fd, &said, 1) == 1 && said == kProven;
  proof_ = {};
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

base::UniqueFd Containment::make_birthplace() {
  if (!cgroup_ || !births_) return {};
  return std::exchange(first_round_, false) ? cgroup_->first_round() : cgroup_->make_round();
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
