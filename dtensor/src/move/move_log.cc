#include "move/move_log.h"

#include <fmt/core.h>

#include "dtrun/dtensor/plan/traffic.h"
#include "move/cause.h"

namespace dtrun::dtensor {
namespace {

namespace log = base::log;

std::string cause_in_words(const Cause* cause) {
  if (cause == nullptr) return "a redistribution";
  std::string words = cause->to_string();
  const Cause* const operand = cause->is_asked() ? nullptr : Cause::operand();
  if (operand != nullptr) words += ", " + operand->argument_of(*cause);
  if (cause->site().line() != 0)
    words += fmt::format(" at {}:{}", cause->site().file_name(), cause->site().line());
  return words;
}

std::string line_of(const Movement& move) {
  const DeviceMesh& mesh = move.site.mesh;
  const auto traffic =
      plan_traffic(move.site.global_shape, mesh.shape(), move.steps, mesh.coordinate(),
                   static_cast<std::int64_t>(tensors::item_size(move.dtype)));
  std::string line = fmt::format(
      "{}: {}{} from {} to {}", cause_in_words(Cause::outermost()),
      tensors::dtype_short_name(move.dtype), tensors::shape_to_string(move.site.global_shape),
      move.steps.front().before.to_string(), move.steps.back().after.to_string());
  for (std::size_t i = 0; i < move.steps.size(); ++i) {
    line += fmt::format("{} {} along {}", i == 0 ? ":" : ",", step_kind_name(move.steps[i].kind),
                        move.steps[i].along(mesh.axis_names()));
    if (traffic[i].sent != 0) line += fmt::format(" ({} bytes sent)", traffic[i].sent);
  }
  return line;
}

std::string line_of(const CrossMovement& move) {
  std::string line =
      fmt::format("{}: {} to {} on {}:", cause_in_words(Cause::outermost()), move.from.to_string(),
                  placements_to_string(move.to.placements()), move.to.mesh().to_string());
  for (const Step& step : move.plan.before)
    line += fmt::format(" {} along {},", step_kind_name(step.kind),
                        step.along(move.from.mesh().axis_names()));
  line += " messages between the meshes";
  for (const Step& step : move.plan.after)
    line += fmt::format(", {} along {}", step_kind_name(step.kind),
                        step.along(move.to.mesh().axis_names()));
  const std::int64_t sent = traffic_across(move.plan, move.from, move.to).sent;
  return line + (sent == 0 ? "" : fmt::format(" ({} bytes sent)", sent));
}

std::string line_of(const BlockMovement& move) {
  const DeviceMesh mesh = move.spec.mesh();
  std::string line = fmt::format("{}: {}: all_to_all along ", cause_in_words(Cause::outermost()),
                                 move.spec.to_string());
  const std::vector<std::string>& names = mesh.axis_names();
  for (std::size_t i = 0; i < move.axes.size(); ++i) {
    const std::size_t axis = move.axes[i];
    line += (i == 0 ? "" : " and ") + (names.empty() ? fmt::format("axis {}", axis) : names[axis]);
  }
  line += fmt::format(" moves elements of dim {}", move.dim);
  return line + (move.traffic.sent == 0 ? "" : fmt::format(" ({} bytes sent)", move.traffic.sent));
}

void write_line(const std::string& line) {
  log::write(log::Component::kDtensor, log::Level::kDebug, line);
}

}  // namespace

void write_move(const Movement& move) {
  write_line(line_of(move));
}
void write_crossing(const CrossMovement& move) {
  write_line(line_of(move));
}
void write_blocks(const BlockMovement& move) {
  write_line(line_of(move));
}
void write_call(const collectives::ObservedCall& call) {
  std::string line = fmt::format("{}: {}: {} among {} ranks", cause_in_words(Cause::outermost()),
                                 tensors::dtype_short_name(call.dtype),
                                 collectives::op_kind_name(call.kind), call.ranks);
  if (call.bytes_sent != 0) line += fmt::format(" ({} bytes sent)", call.bytes_sent);
  write_line(line);
}

}  // namespace dtrun::dtensor
