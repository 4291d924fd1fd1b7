#include "dtrun/dtensor/optim/check_finite.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor::optim {
namespace {

/// Numbers of this rank's part that are nan or infinite.
std::int64_t odd_numbers(const Tensor& tensor) {
  const LocalTensor& local = tensor.local();
  if (local.numel() == 0 || !tensors::is_floating_point(local.dtype())) return 0;
  // Of a finite number, and of no other, the difference to itself is 0.
  const Tensor part(local);
  return static_cast<std::int64_t>(sum((part - part).ne(0)).item());
}

std::string told(const char* what, const std::string& name, const Tensor& tensor) {
  const std::int64_t odd = odd_numbers(tensor);
  if (odd == 0) return "";
  return std::string(what) + "\"" + name + "\" is not finite: " + std::to_string(odd) + " of " +
         std::to_string(tensor.local().numel()) + " numbers";
}

/// Empty: all is finite.
std::string found_here(const nn::Module& model) {
  const auto parameters = model.named_parameters();
  for (const auto& [name, parameter] : parameters) {
    const std::string text = told("parameter ", name, parameter.detach());
    if (!text.empty()) return text;
  }
  for (const auto& [name, parameter] : parameters) {
    const Tensor gradient = parameter.grad();
    const std::string text =
        gradient.defined() ? told("the gradient of ", name, gradient.detach()) : "";
    if (!text.empty()) return text;
  }
  return "";
}

[[noreturn]] void refuse_numbers(std::int64_t step, const std::string& text, int rank) {
  throw base::Error(base::ErrorCode::kInvalidArgument, "step " + std::to_string(step) + ": " + text,
                    rank < 0 ? "" : "found on rank " + std::to_string(rank),
                    "a lower learning rate, clip_grad_norm_(), or GradScaler for f16");
}

/// Where the group's tensors lie.
tensors::Device device_of(const nn::Module& model, const ProcessGroup& group) {
  const Tensors parameters = model.parameters();
  const bool is_served = group.serves(tensors::DeviceType::cpu) || parameters.empty();
  return is_served ? tensors::kCpu : parameters[0].device();
}

/// What the first rank that has found something says, or nothing.
void refuse_together(std::int64_t step, const std::string& text, const ProcessGroup& group,
                     tensors::Device device, const Tensor::Site& site) {
  const auto size = static_cast<std::int64_t>(text.size());
  const LocalTensor own = tensors::full({1}, size, {DType::i64, device});
  const LocalTensor all = tensors::zeros({group.size()}, {DType::i64, device});
  group.all_gather_into_tensor(all, own, {}, site);
  const std::vector<std::int64_t> sizes = all.to_vector_i64();
  const auto first = std::ranges::find_if(sizes, [](std::int64_t letters) { return letters > 0; });
  if (first == sizes.end()) return;
  const int rank = static_cast<int>(first - sizes.begin());
  LocalTensor letters = tensors::zeros({*first}, {DType::u8});
  if (rank == group.rank()) std::memcpy(letters.data(), text.data(), text.size());
  letters = letters.to(device);
  group.broadcast(letters, rank, {}, site);
  letters = letters.to(tensors::kCpu);
  refuse_numbers(step,
                 std::string(letters.data_as<char>(), static_cast<std::size_t>(letters.numel())),
                 group.global_ranks()[static_cast<std::size_t>(rank)]);
}

}  // namespace

void check_finite(const nn::Module& model, std::int64_t step,
                  const std::optional<DeviceMesh>& ranks, Tensor::Site site) {
  const NoGrad no_grad;
  const std::string text = found_here(model);
  if (ranks) {
    const ProcessGroup& group = ranks->group();
    refuse_together(step, text, group, device_of(model, group), site);
    return;
  }
  if (!text.empty()) refuse_numbers(step, text, -1);
}

}  // namespace dtrun::dtensor::optim
