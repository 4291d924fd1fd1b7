// Modules of modules: Sequential and ModuleList; and Flatten, for use between layers.
#pragma once

#include <concepts>
#include <cstddef>
#include <utility>

#include "dtrun/dtensor/nn/module_holder.h"

namespace dtrun::dtensor::nn {

/// What can be registered: a shared_ptr to a module, or a ModuleHolder.
template <typename Pointer>
concept ModulePointer = std::convertible_to<Pointer, std::shared_ptr<Module>>;

/// Modules by their number: "0", "1".
class NumberedModules : public Module {
 public:
  template <ModulePointer Pointer>
  void push_back(const Pointer& module) {
    register_module(std::to_string(size()), module);
  }
  std::size_t size() const { return named_children().size(); }
  bool empty() const { return size() == 0; }
  /// Negative ones count from the end. @throws Error kNotFound
  Module& at(std::int64_t index) const;
  Module& operator[](std::int64_t index) const { return at(index); }

  /// for (Module& block : *blocks)
  class Iterator {
   public:
    Module& operator*() const { return *(*children_)[index_].second; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    friend class NumberedModules;
    using Children = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;
    Iterator(const Children& children, std::size_t index) : children_(&children), index_(index) {}
    const Children* children_;
    std::size_t index_;
  };
  Iterator begin() const { return {named_children(), 0}; }
  Iterator end() const { return {named_children(), size()}; }
};

/// Calls its modules one after the other on the output of the one before.
class SequentialModule : public NumberedModules {
 public:
  template <ModulePointer... Pointers>
  explicit SequentialModule(const Pointers&... modules) {
    (push_back(modules), ...);
  }
  Tensors forward_all(const Tensors& inputs) override;
  Tensor forward(const Tensor& input) override;
};
using Sequential = ModuleHolder<SequentialModule>;

/// A list of modules, which its owner calls. Its text shows equal modules once.
class ModuleListModule : public NumberedModules {
 public:
  template <ModulePointer... Pointers>
  explicit ModuleListModule(const Pointers&... modules) {
    (push_back(modules), ...);
  }

 protected:
  std::vector<std::string> child_lines() const override;
};
using ModuleList = ModuleHolder<ModuleListModule>;

/// Joins the dims from start_dim to end_dim into one.
class FlattenModule : public Module {
 public:
  explicit FlattenModule(int start = 1, int end = -1) : start_dim(start), end_dim(end) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  const int start_dim;
  const int end_dim;
};
using Flatten = ModuleHolder<FlattenModule>;

}  // namespace dtrun::dtensor::nn
