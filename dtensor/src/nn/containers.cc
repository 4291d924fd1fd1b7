#include "dtrun/dtensor/nn/containers.h"

#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/views.h"

namespace dtrun::dtensor::nn {

Module& NumberedModules::at(std::int64_t index) const {
  const auto count = static_cast<std::int64_t>(size());
  const std::int64_t place = index < 0 ? index + count : index;
  if (place >= 0 && place < count) return *named_children()[static_cast<std::size_t>(place)].second;
  throw base::Error(
      base::ErrorCode::kNotFound,
      "module " + std::to_string(index) + " of a " + name() + " of " + std::to_string(count), "",
      "an index below " + std::to_string(count));
}

Tensor SequentialModule::forward(const Tensor& input) {
  Tensor x = input;
  for (const auto& [name, module] : named_children()) x = (*module)(x);
  return x;
}

Tensors SequentialModule::forward_all(const Tensors& inputs) {
  Tensors x = inputs;
  for (const auto& [name, module] : named_children()) x = module->call(x);
  return x;
}

std::vector<std::string> ModuleListModule::child_lines() const {
  std::vector<std::string> lines;
  const auto& children = named_children();
  for (std::size_t first = 0; first < children.size();) {
    const std::string text = children[first].second->to_string();
    std::size_t last = first;
    while (last + 1 < children.size() && children[last + 1].second->to_string() == text) ++last;
    const std::string number = std::to_string(first);
    lines.push_back(last == first ? "(" + number + "): " + text
                                  : "(" + number + "-" + std::to_string(last) +
                                        "): " + std::to_string(last - first + 1) + " x " + text);
    first = last + 1;
  }
  return lines;
}

Tensor FlattenModule::forward(const Tensor& input) {
  return flatten(input, start_dim, end_dim);
}
std::string FlattenModule::extra_repr() const {
  return "start_dim=" + std::to_string(start_dim) + ", end_dim=" + std::to_string(end_dim);
}

}  // namespace dtrun::dtensor::nn
