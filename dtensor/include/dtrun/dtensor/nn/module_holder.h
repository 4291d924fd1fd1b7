// ModuleHolder: a shared pointer to a module that is constructed and called like the module.
// Members and variables are holders. Copies refer to the same module.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor::nn {

template <std::derived_from<Module> M>
class ModuleHolder {
 public:
  using ContainedType = M;

  /// Makes a module of these arguments. A single holder is copied.
  template <typename... Args>
  requires(sizeof...(Args) > 0 && std::constructible_from<M, Args...> &&
           !(sizeof...(Args) == 1 && (std::derived_from<std::remove_cvref_t<Args>, ModuleHolder> &&
                                      ...))) explicit ModuleHolder(Args&&... args)
      : module_(std::make_shared<M>(std::forward<Args>(args)...)) {}
  ModuleHolder() requires std::default_initializable<M> : module_(std::make_shared<M>()) {}
  /// Without a module.
  ModuleHolder(std::nullptr_t) {}                                          // NOLINT
  ModuleHolder(std::shared_ptr<M> module) : module_(std::move(module)) {}  // NOLINT

  M* operator->() const { return module_.get(); }
  M& operator*() const { return *module_; }
  M* get() const { return module_.get(); }
  const std::shared_ptr<M>& ptr() const { return module_; }
  explicit operator bool() const { return module_ != nullptr; }
  operator std::shared_ptr<Module>() const { return module_; }  // NOLINT: to be registered

  template <std::convertible_to<Tensor>... More>
  Tensor operator()(const Tensor& input, const More&... more) const {
    return (*module_)(input, more...);
  }

 private:
  std::shared_ptr<M> module_;
};

}  // namespace dtrun::dtensor::nn
