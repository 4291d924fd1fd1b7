#include "dtrun/dtensor/parallel/explain_step.h"

#include <sys/resource.h>

#include <ostream>

#include "dtrun/tensor/host_memory.h"
#include "layout/text_table.h"
#include "parallel/pass_watch.h"

namespace dtrun::dtensor {
namespace {

std::int64_t bytes_for(std::int64_t elements, DType dtype) {
  return elements * static_cast<std::int64_t>(tensors::item_size(dtype));
}

/// Of those that there are.
std::int64_t bytes_of_states(const optim::Optimizer& optimizer) {
  std::int64_t bytes = 0;
  for (const auto& [name, state] : optimizer.state_dict()) {
    if (state.dim() > 0) bytes += bytes_here(state);
  }
  return bytes;
}

/// Parameters, states, and the gradients that are there.
std::int64_t bytes_held(const nn::Module& model, const optim::Optimizer& optimizer) {
  std::int64_t bytes = bytes_of_states(optimizer);
  for (const auto& [name, parameter] : model.named_parameters()) {
    bytes += bytes_here(parameter);
    if (parameter.grad().defined()) bytes += bytes_here(parameter.grad());
  }
  return bytes;
}

std::int64_t peak_of_process() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

void add_counts(CommCounts& to, const CommCounts& counts) {
  for (const auto& [name, count] : counts) to[name] += count;
}

/// Forward is what modules called; the rest of what was not backward lies elsewhere.
void sort_counts(StepExplanation& plan, const CommCounter& counter) {
  plan.modules = counter.by_module();
  const auto global = plan.modules.extract("Global");
  for (const auto& [path, counts] : plan.modules) {
    if (path.find('.') == std::string::npos) add_counts(plan.forward, counts.forward);
  }
  if (global.empty()) return;
  plan.backward = global.mapped().backward;
  plan.elsewhere = global.mapped().forward;
  for (const auto& [name, count] : plan.forward) {
    CommCount& rest = plan.elsewhere[name];
    rest.calls -= count.calls;
    rest.bytes -= count.bytes;
    if (rest.calls == 0) plan.elsewhere.erase(name);
  }
}

std::string layout_text(const Tensor& tensor) {
  if (!tensor.is_distributed()) return "plain";
  return placements_to_string(tensor.placements()) + " on " + tensor.device_mesh().to_string();
}

/// "all_gather 4 (1,024), reduce_scatter 2 (512)".
std::string counts_text(const CommCounts& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += (text.empty() ? "" : ", ") + name + " " + grouped_digits(count.calls) + " (" +
            grouped_digits(count.bytes) + ")";
  }
  return text.empty() ? "-" : text;
}

}  // namespace

StepExplanation explain_step(const nn::Module& model, const optim::Optimizer& optimizer,
                             const std::function<void()>& step,
                             std::optional<StepMemory> predicted) {
  StepExplanation plan;
  plan.predicted = predicted;
  {
    const CommCounter counter;
    tensors::reset_host_memory_peak();
    const PassWatch watch(bytes_held(model, optimizer));
    step();
    watch.note(plan.memory);
    plan.tensors_peak = static_cast<std::int64_t>(tensors::host_memory().peak);
    sort_counts(plan, counter);
  }
  plan.resident_peak = peak_of_process();
  for (const auto& [name, parameter] : model.named_parameters()) {
    plan.parameters.push_back(
        {name, parameter.shape(), parameter.dtype(), layout_text(parameter), bytes_here(parameter),
         bytes_for(parameter.numel(), parameter.dtype()), parameter.requires_grad()});
    plan.memory.parameters += bytes_here(parameter);
    if (parameter.requires_grad()) plan.memory.gradients += bytes_here(parameter);
  }
  plan.memory.states = bytes_of_states(optimizer);
  return plan;
}

namespace {

std::string memory_text(const StepExplanation& plan) {
  using Align = TextTable::Align;
  TextTable table({Align::left, Align::right, Align::right});
  table.add({"memory of this rank, bytes", "predicted", "measured"});
  const auto add = [&](const char* what, std::int64_t StepMemory::*which) {
    table.add({what, plan.predicted ? grouped_digits(*plan.predicted.*which) : "-",
               grouped_digits(plan.memory.*which)});
  };
  add("parameters", &StepMemory::parameters);
  add("gradients", &StepMemory::gradients);
  add("states of the optimizer", &StepMemory::states);
  add("the largest gather", &StepMemory::gathered);
  add("activations, when backward begins", &StepMemory::activations);
  add("all tensors, at their most", &StepMemory::peak);
  table.add({"tensors of 1 MiB and more, at their most", "", grouped_digits(plan.tensors_peak)});
  table.add({"the whole process, at its most so far", "", grouped_digits(plan.resident_peak)});
  return table.text();
}

}  // namespace

std::string StepExplanation::to_string() const {
  using Align = TextTable::Align;
  TextTable table({Align::left, Align::left, Align::left, Align::right, Align::right});
  table.add({"parameter", "shape", "lies as", "bytes here", "of"});
  for (const ExplainedParameter& each : parameters) {
    table.add(
        {each.name,
         std::string(tensors::dtype_short_name(each.dtype)) + tensors::shape_to_string(each.shape),
         each.layout + (each.is_trained ? "" : ", not trained"), grouped_digits(each.bytes_here),
         grouped_digits(each.bytes_whole)});
  }
  TextTable sent({Align::left, Align::left, Align::left});
  sent.add({"module", "forward: calls (bytes sent)", "backward"});
  for (const auto& [path, counts] : modules)
    sent.add({path, counts_text(counts.forward), counts_text(counts.backward)});
  sent.add({"all modules", counts_text(forward), counts_text(backward)});
  sent.add({"elsewhere", counts_text(elsewhere), ""});
  return table.text() + "\n" + sent.text() + "\n" + memory_text(*this);
}

std::ostream& operator<<(std::ostream& out, const StepExplanation& explanation) {
  return out << explanation.to_string();
}

}  // namespace dtrun::dtensor
