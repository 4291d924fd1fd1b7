#include "dtrun/dtensor/parallel/explain_step.h"

#include <sys/resource.h>

#include <algorithm>
#include <ostream>
#include <string_view>
#include <utility>

#include "dtrun/collectives/call_observer.h"
#include "dtrun/tensor/host_memory.h"
#include "layout/text_table.h"
#include "move/span.h"

namespace dtrun::dtensor {
namespace {

std::int64_t bytes_for(std::int64_t elements, DType dtype) {
  return elements * static_cast<std::int64_t>(tensors::item_size(dtype));
}

std::int64_t bytes_here(const Tensor& tensor) {
  return bytes_for(tensor.local().numel(), tensor.dtype());
}

/// The largest gather, as what comes together in it.
class LargestGather : public collectives::CallObserver {
 public:
  void on_call(const collectives::ObservedCall& call) override {
    if (call.kind != collectives::OpKind::all_gather || call.ranks < 2) return;
    bytes = std::max(bytes, call.bytes_sent / (call.ranks - 1) * call.ranks);
  }
  std::int64_t bytes = 0;
};

/// What the forward has left when backward begins. It hands on to the observer around it, such as a
/// Trace.
class BackwardBegin : public SpanObserver {
 public:
  /// @param around SpanObserver::innermost(), before this one stands
  BackwardBegin(SpanObserver* around, const tensors::HostMemoryMeter& meter)
      : around_(around), meter_(meter) {}
  void begin(Kind kind, std::string_view name) override {
    if (kind == Kind::backward && !std::exchange(has_begun_, true)) bytes = meter_.now();
    if (around_ != nullptr) around_->begin(kind, name);
  }
  void end() override {
    if (around_ != nullptr) around_->end();
  }
  std::int64_t bytes = 0;

 private:
  SpanObserver* const around_;
  const tensors::HostMemoryMeter& meter_;
  bool has_begun_ = false;
};

/// Parameters, states, and the gradients that are there.
std::int64_t bytes_held(const nn::Module& model, const optim::Optimizer& optimizer) {
  std::int64_t bytes = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    bytes += bytes_here(parameter);
    if (parameter.grad().defined()) bytes += bytes_here(parameter.grad());
  }
  for (const auto& [name, state] : optimizer.state_dict()) {
    if (state.dim() > 0) bytes += bytes_here(state);
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
                             const std::function<void()>& step) {
  StepExplanation plan;
  {
    const CommCounter counter;
    LargestGather gather;
    tensors::reset_host_memory_peak();
    const std::int64_t held = bytes_held(model, optimizer);
    const tensors::HostMemoryMeter meter;
    BackwardBegin backward(SpanObserver::innermost(), meter);
    step();
    plan.memory.activations = backward.bytes;
    if (meter.counts()) plan.memory.step_peak = held + meter.peak();
    plan.memory.tensors_peak = static_cast<std::int64_t>(tensors::host_memory().peak);
    plan.memory.gathered = gather.bytes;
    sort_counts(plan, counter);
  }
  plan.memory.resident_peak = peak_of_process();
  for (const auto& [name, parameter] : model.named_parameters()) {
    plan.parameters.push_back(
        {name, parameter.shape(), parameter.dtype(), layout_text(parameter), bytes_here(parameter),
         bytes_for(parameter.numel(), parameter.dtype()), parameter.requires_grad()});
    plan.memory.parameters += bytes_here(parameter);
    if (parameter.requires_grad()) plan.memory.gradients += bytes_here(parameter);
  }
  for (const auto& [name, state] : optimizer.state_dict()) {
    if (state.dim() > 0) plan.memory.states += bytes_here(state);
  }
  return plan;
}

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
  TextTable held({Align::left, Align::right});
  held.add({"memory of this rank", "bytes"});
  held.add({"parameters", grouped_digits(memory.parameters)});
  held.add({"gradients", grouped_digits(memory.gradients)});
  held.add({"states of the optimizer", grouped_digits(memory.states)});
  held.add({"the largest gather", grouped_digits(memory.gathered)});
  held.add({"activations, when backward begins", grouped_digits(memory.activations)});
  held.add({"predicted: all of these", grouped_digits(memory.predicted_peak())});
  held.add({"measured: the same, peak of the step", grouped_digits(memory.step_peak)});
  held.add({"measured: tensors of 1 MiB and more, peak of the step",
            grouped_digits(memory.tensors_peak)});
  held.add({"measured: the whole process, peak so far", grouped_digits(memory.resident_peak)});
  return table.text() + "\n" + sent.text() + "\n" + held.text();
}

std::ostream& operator<<(std::ostream& out, const StepExplanation& explanation) {
  return out << explanation.to_string();
}

}  // namespace dtrun::dtensor
