#include "arguments.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::collectives {

using base::Error;
using base::ErrorCode;
using tensors::DType;
using tensors::dtype_name;

namespace {

[[noreturn]] void refuse(std::string what, std::string why = {}, std::string remedy = {}) {
  throw Error(ErrorCode::kInvalidArgument, std::move(what), std::move(why), std::move(remedy));
}

}  // namespace

void require_tensor(const GroupShape& group, const Tensor& tensor, std::string_view what) {
  if (!tensor.defined()) refuse(fmt::format("{} is an undefined tensor", what));
  if (tensor.device().type != group.device)
    refuse(fmt::format("{} is on {}, and the group's backend '{}' works on {} tensors", what,
                       tensor.device().to_string(), group.backend,
                       tensors::Device{group.device, 0}.to_string()),
           "", "move the tensor, or make the group with the backend of its device");
}

void require_rank(const GroupShape& group, int rank, std::string_view what) {
  if (rank < 0 || rank >= group.size)
    refuse(fmt::format("{} is {}, and the group's ranks are 0 to {}", what, rank, group.size - 1));
}

void require_list(const GroupShape& group, const std::vector<Tensor>& list, DType dtype,
                  std::string_view what) {
  if (list.size() != static_cast<std::size_t>(group.size))
    refuse(fmt::format("{} has {} tensors, and the group {} ranks", what, list.size(), group.size),
           "", "give one tensor per rank");
  for (std::size_t rank = 0; rank < list.size(); ++rank) {
    const std::string entry = fmt::format("{}[{}]", what, rank);
    require_tensor(group, list[rank], entry);
    if (list[rank].dtype() != dtype)
      refuse(fmt::format("{} is {}, and the other tensor of the call {}", entry,
                         dtype_name(list[rank].dtype()), dtype_name(dtype)));
  }
}

void require_no_list(const std::vector<Tensor>& list, std::string_view what,
                     std::string_view root) {
  if (!list.empty())
    refuse(fmt::format("{} has {} tensors on a rank that is not the {}", what, list.size(), root),
           "", fmt::format("pass an empty list everywhere but at the {}", root));
}

void require_same_count(const Tensor& a, std::string_view what_a, const Tensor& b,
                        std::string_view what_b) {
  if (a.numel() != b.numel())
    refuse(fmt::format("{} has {} elements, {} has {}", what_a, a.numel(), what_b, b.numel()));
}

void require_reduce_op(ReduceOp op, DType dtype) {
  if (!reduce_op_supports(op, dtype))
    refuse(fmt::format("{} tensors cannot be reduced by {}", dtype_name(dtype), reduce_op_name(op)),
           op == ReduceOp::avg ? "truth values have no mean" : "bits are for integers and bool");
}

std::uint64_t hash_bytes(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash == 0 ? 1 : hash;
}

std::uint64_t hash_counts(const std::vector<Tensor>& list) {
  std::vector<std::int64_t> counts;
  for (const Tensor& tensor : list) counts.push_back(tensor.numel());
  return hash_bytes(
      {reinterpret_cast<const char*>(counts.data()), counts.size() * sizeof(counts[0])});
}

std::uint32_t hash_shape(const Tensor& tensor) {
  const tensors::Shape& shape = tensor.shape();
  return static_cast<std::uint32_t>(hash_bytes(
             {reinterpret_cast<const char*>(shape.data()), shape.size() * sizeof(shape[0])})) |
         1U;
}

Buffer Staging::keep(const Tensor& contiguous) {
  kept_.push_back(contiguous);
  return {contiguous.numel() == 0 ? nullptr : contiguous.data(), contiguous.numel(),
          contiguous.dtype()};
}

void Staging::copy_back(const Tensor& target, const Tensor& temporary) {
  copies_.emplace_back(target, temporary);
}

Buffer Staging::input(const Tensor& tensor) {
  return keep(tensor.contiguous());
}

Buffer Staging::output(const Tensor& tensor) {
  if (tensor.is_contiguous()) return keep(tensor);
  const Tensor temporary =
      tensors::empty(tensor.shape(), {.dtype = tensor.dtype(), .device = tensor.device()});
  copy_back(tensor, temporary);
  return keep(temporary);
}

Buffer Staging::in_place(const Tensor& tensor) {
  const Tensor contiguous = tensor.contiguous();
  if (!tensor.is_contiguous()) copy_back(tensor, contiguous);
  return keep(contiguous);
}

std::vector<Buffer> Staging::inputs(const std::vector<Tensor>& list) {
  std::vector<Buffer> buffers;
  for (const Tensor& tensor : list) buffers.push_back(input(tensor));
  return buffers;
}

std::vector<Buffer> Staging::outputs(const std::vector<Tensor>& list) {
  std::vector<Buffer> buffers;
  for (const Tensor& tensor : list) buffers.push_back(output(tensor));
  return buffers;
}

void Staging::attach_to(Call& call) && {
  call.keep_alive = std::make_shared<std::vector<Tensor>>(std::move(kept_));
  if (copies_.empty()) return;
  call.finish = [copies = std::move(copies_)] {
    for (const auto& [target, temporary] : copies) target.copy_(temporary);
  };
}

}  // namespace dtrun::collectives
