// StateDict: named tensors in the order of insertion. Modules are saved to it and loaded from it. A
// value; its tensors are handles.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor::nn {

class StateDict {
 public:
  using Entry = std::pair<std::string, Tensor>;

  StateDict() = default;
  StateDict(std::initializer_list<Entry> entries);

  /// Replaces the tensor of that name, if there is one.
  void insert(const std::string& name, Tensor tensor);
  bool contains(const std::string& name) const { return places_.count(name) != 0; }
  /// @throws Error kNotFound naming the names there are
  const Tensor& at(const std::string& name) const;
  const Tensor& operator[](const std::string& name) const { return at(name); }
  std::vector<std::string> names() const;

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  std::vector<Entry>::const_iterator begin() const { return entries_.begin(); }
  std::vector<Entry>::const_iterator end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> places_;
};

/// Writes the tensors to a .safetensors file (dtrun/tensor/safetensors.h). Each rank that calls it
/// writes its own file.
/// @throws Error kInvalidArgument for a distributed tensor, kSystem
void save_safetensors(const std::string& path, const StateDict& state);
/// Local tensors. @throws Error kNotFound, kInvalidArgument where the file is none
StateDict load_safetensors(const std::string& path);

}  // namespace dtrun::dtensor::nn
