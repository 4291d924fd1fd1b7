#include "dtrun/dtensor/nn/state_dict.h"

#include "dtrun/base/error.h"
#include "dtrun/tensor/safetensors.h"
#include "nn/name_list.h"

namespace dtrun::dtensor::nn {

StateDict::StateDict(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) insert(entry.first, entry.second);
}

void StateDict::insert(const std::string& name, Tensor tensor) {
  const auto [place, is_new] = places_.try_emplace(name, entries_.size());
  if (is_new) {
    entries_.emplace_back(name, std::move(tensor));
  } else {
    entries_[place->second].second = std::move(tensor);
  }
}

const Tensor& StateDict::at(const std::string& name) const {
  const auto place = places_.find(name);
  if (place != places_.end()) return entries_[place->second].second;
  throw base::Error(base::ErrorCode::kNotFound, "no tensor \"" + name + "\" in a state dict",
                    "it has " + name_list(names()), "contains() asks first");
}

std::vector<std::string> StateDict::names() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.first);
  return names;
}

void save_safetensors(const std::string& path, const StateDict& state) {
  tensors::NamedTensors named;
  for (const auto& [name, tensor] : state) {
    if (tensor.is_distributed()) {
      throw base::Error(base::ErrorCode::kInvalidArgument,
                        "save_safetensors of \"" + name + "\", " + tensor.spec().to_string(),
                        "a file has whole tensors", "full_tensor(), on all ranks, before");
    }
    named.tensors.emplace_back(name, tensor.local());
  }
  tensors::save_safetensors(path, named);
}

StateDict load_safetensors(const std::string& path) {
  StateDict state;
  for (const auto& [name, tensor] : tensors::load_safetensors(path).tensors)
    state.insert(name, tensor);
  return state;
}

}  // namespace dtrun::dtensor::nn
