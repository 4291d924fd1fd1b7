// What a module's tensors are saved as, loaded from, and moved to.
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/nn/module.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/dtype.h"
#include "nn/load_numbers.h"
#include "nn/name_list.h"

namespace dtrun::dtensor::nn {

using base::Error;
using base::ErrorCode;

StateDict Module::state_dict() const {
  StateDict state;
  for (const auto& [name, tensor] :
       named_tensors([](Kind kind) { return kind != Kind::passing_buffer; })) {
    state.insert(name, tensor.detach());
  }
  return state;
}

namespace {

/// Of what has one name on both sides, what does not fit.
std::vector<std::string> misfits(const StateDict& own, const StateDict& given) {
  std::vector<std::string> texts;
  for (const auto& [name, tensor] : own) {
    if (!given.contains(name)) continue;
    const Tensor& other = given.at(name);
    if (!other.defined()) {
      texts.push_back(name + " is undefined");
    } else if (other.shape() != tensor.shape()) {
      texts.push_back(name + " is " + tensors::shape_to_string(other.shape()) + ", the module's " +
                      tensors::shape_to_string(tensor.shape()));
    } else if (tensors::is_floating_point(other.dtype()) &&
               !tensors::is_floating_point(tensor.dtype())) {
      texts.push_back(name + " is of " + std::string(tensors::dtype_name(other.dtype())) +
                      ", the module's of " + std::string(tensors::dtype_name(tensor.dtype())));
    }
  }
  return texts;
}

[[noreturn]] void refuse_load(const std::string& module, const std::string& why,
                              const std::string& remedy) {
  throw Error(ErrorCode::kInvalidArgument, "load_state_dict of " + module, why, remedy);
}

}  // namespace

IncompatibleKeys Module::load_state_dict(const StateDict& state, LoadOptions options) {
  const StateDict own = state_dict();
  IncompatibleKeys keys;
  for (const std::string& name : own.names()) {
    if (!state.contains(name)) keys.missing.push_back(name);
  }
  for (const std::string& name : state.names()) {
    if (!own.contains(name)) keys.unexpected.push_back(name);
  }
  std::string why;
  if (!keys.missing.empty()) why = "missing: " + name_list(keys.missing);
  if (!keys.unexpected.empty())
    why += (why.empty() ? "" : "; ") + ("unexpected: " + name_list(keys.unexpected));
  if (options.strict && !why.empty())
    refuse_load(name(), why, "the dict of the same model, or {.strict = false}");
  const std::vector<std::string> unfit = misfits(own, state);
  if (!unfit.empty())
    refuse_load(name(), name_list(unfit), "the dict of a model of the same sizes");
  for (const auto& [name, tensor] : own) {
    if (state.contains(name)) load_numbers(tensor, state.at(name));
  }
  return keys;
}

Module::NamedTensors Module::parameters_and_buffers() const {
  NamedTensors all = named_parameters();
  for (const auto& entry : named_buffers()) all.push_back(entry);
  return all;
}

// A tensor that stands in several places is moved once: same() goes by the handle.
void Module::replace_tensors(const std::function<Tensor(const Tensor&)>& change) const {
  const NoGrad no_grad;
  const NamedTensors all = parameters_and_buffers();
  for (const auto& [name, tensor] : all) {
    const Tensor numbers = change(tensor.detach());
    const Tensor gradient = tensor.grad();
    if (gradient.defined()) tensor.set_grad({});
    tensor.set_data(numbers);
    if (gradient.defined()) tensor.set_grad(change(gradient));
  }
}

void Module::to(Device device) {
  const NamedTensors all = parameters_and_buffers();
  for (const auto& [path, tensor] : all) {
    if (!tensor.is_distributed() || tensor.device() == device) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "to(" + device.to_string() + ") of " + name() + ", whose " + path + " lies on " +
                    tensor.device_mesh().to_string(),
                "a mesh is of one device type", "to() before distribute_module()");
  }
  replace_tensors([&](const Tensor& tensor) { return tensor.to(device); });
}

void Module::to(DType dtype) {
  if (!tensors::is_floating_point(dtype)) {
    throw Error(ErrorCode::kInvalidArgument,
                "to(" + std::string(tensors::dtype_name(dtype)) + ") of " + name(),
                "parameters are floating point numbers", "DType::f32, f64, f16 or bf16");
  }
  replace_tensors([&](const Tensor& tensor) {
    return tensors::is_floating_point(tensor.dtype()) ? tensor.to(dtype) : tensor;
  });
}

}  // namespace dtrun::dtensor::nn
