#include "dtrun/dtensor/nn/activations.h"

#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/rows.h"
#include "nn/python_text.h"

namespace dtrun::dtensor::nn {

Tensor ReLUModule::forward(const Tensor& input) {
  return relu(input);
}
Tensor SiLUModule::forward(const Tensor& input) {
  return silu(input);
}
Tensor TanhModule::forward(const Tensor& input) {
  return tanh(input);
}
Tensor SigmoidModule::forward(const Tensor& input) {
  return sigmoid(input);
}

Tensor GELUModule::forward(const Tensor& input) {
  return gelu(input, form);
}
std::string GELUModule::extra_repr() const {
  return std::string("approximate='") + (form == GeluForm::erf ? "none" : "tanh") + "'";
}

Tensor SoftmaxModule::forward(const Tensor& input) {
  return softmax(input, dim);
}
std::string SoftmaxModule::extra_repr() const {
  return "dim=" + std::to_string(dim);
}

DropoutModule::DropoutModule(double its_p) : p(its_p) {
  if (p >= 0 && p <= 1) return;
  throw base::Error(base::ErrorCode::kInvalidArgument, "a Dropout with p " + python_number(p),
                    "it is a probability", "a number between 0 and 1");
}
Tensor DropoutModule::forward(const Tensor& input) {
  return dropout(input, {.p = p, .training = is_training()});
}
std::string DropoutModule::extra_repr() const {
  return "p=" + python_number(p) + ", inplace=False";
}

}  // namespace dtrun::dtensor::nn
