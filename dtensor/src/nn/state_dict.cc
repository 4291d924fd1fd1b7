#include "dtrun/dtensor/nn/state_dict.h"

#include "dtrun/base/error.h"
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

}  // namespace dtrun::dtensor::nn
