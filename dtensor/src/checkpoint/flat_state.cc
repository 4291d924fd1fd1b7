#include "checkpoint/flat_state.h"

#include <algorithm>
#include <set>

#include "dtrun/base/error.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;

namespace {

[[noreturn]] void refuse_tensor(const std::string& name, const std::string& why,
                                const std::string& remedy) {
  throw Error(ErrorCode::kInvalidArgument, "a checkpoint cannot have \"" + name + "\"", why,
              remedy);
}

void check_tensor(const std::string& name, const Tensor& tensor) {
  if (name.empty() || name == "__metadata__")
    refuse_tensor(name, "the name is one that .safetensors files keep", "another name");
  if (!tensor.defined()) refuse_tensor(name, "it is undefined", "");
  if (!tensor.is_distributed()) return;
  const Layout& layout = tensor.spec().layout();
  for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
    if (layout.is_partial(axis))
      refuse_tensor(name, "it is Partial: " + tensor.spec().to_string(),
                    "redistribute() it to Replicate or Shard before");
  }
}

}  // namespace

nn::Module::NamedTensors parameters_of(const State& state) {
  nn::Module::NamedTensors all;
  for (const State::Entry& entry : state.entries()) {
    for (const auto& [name, tensor] : entry.part->parameters())
      all.emplace_back(full_name(entry.name, name), tensor);
  }
  return all;
}

FlatState flattened(const State& state) {
  FlatState flat;
  const nn::Module::NamedTensors parameters = parameters_of(state);
  std::set<std::string> names;
  const auto add_name = [&](const std::string& name) {
    if (!names.insert(name).second)
      throw Error(ErrorCode::kInvalidArgument, "a state has \"" + name + "\" twice", "",
                  "a name of its own for each part");
  };
  for (const State::Entry& entry : state.entries()) {
    const Saved saved = entry.part->saved(parameters);
    for (const auto& [name, tensor] : saved.tensors) {
      flat.tensors.emplace_back(full_name(entry.name, name), tensor);
      add_name(flat.tensors.back().first);
      check_tensor(flat.tensors.back().first, tensor);
    }
    for (const auto& [name, value] : saved.values) {
      add_name(full_name(entry.name, name));
      flat.values[full_name(entry.name, name)] = value;
    }
    for (const auto& [name, value] : saved.rank_values) {
      add_name(full_name(entry.name, name));
      flat.rank_values[full_name(entry.name, name)] = value;
    }
  }
  return flat;
}

TensorPart part_of_tensor(const std::string& name, const Tensor& tensor) {
  TensorPart part{name, tensor.dtype(), tensor.shape(), std::nullopt, {}, {}};
  if (!tensor.is_distributed()) {
    part.box = Box{Shape(tensor.shape().size(), 0), tensor.shape()};
    return part;
  }
  const Spec& spec = tensor.spec();
  if (!spec.is_outside()) part.box = spec.local_box();
  part.mesh_shape = spec.mesh().shape();
  part.layout = spec.layout().to_string();
  return part;
}

}  // namespace dtrun::dtensor::dcp
