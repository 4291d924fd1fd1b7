#include "arguments.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "overlap.h"

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

std::string ArgumentName::to_string() const {
  return index < 0 ? std::string(text) : fmt::format("{}[{}]", text, index);
}

void refuse_tensor(const GroupShape& group, const LocalTensor& tensor, DType dtype,
                   ArgumentName what) {
  if (!tensor.defined()) refuse(fmt::format("{} is an undefined tensor", what.to_string()));
  if (tensor.device().type != group.device)
    refuse(fmt::format("{} is on {}, and the call's first tensor on {}", what.to_string(),
                       tensor.device().to_string(), tensors::Device{group.device, 0}.to_string()),
           "the first tensor's device chooses the backend, which works on one device type",
           "move the tensor");
  refuse(fmt::format("{} is {}, and the other tensor of the call {}", what.to_string(),
                     dtype_name(tensor.dtype()), dtype_name(dtype)));
}

void refuse_rank(const GroupShape& group, int rank, std::string_view what) {
  refuse(fmt::format("{} is {}, and the group's ranks are 0 to {}", what, rank, group.size - 1));
}

void refuse_length(const GroupShape& group, const std::vector<LocalTensor>& list,
                   std::string_view what) {
  refuse(fmt::format("{} has {} tensors, and the group {} ranks", what, list.size(), group.size),
         "", "give one tensor per rank");
}

void refuse_parts(const AgreedExchange& exchange, const GroupShape& group, const PeerParts& parts,
                  std::string_view what) {
  if (parts.peers.size() != parts.tensors.size())
    refuse(fmt::format("{} has {} tensors for {} peers", what, parts.tensors.size(),
                       parts.peers.size()));
  for (std::size_t i = 0; i < parts.peers.size(); ++i) {
    require_rank(group, parts.peers[i], "a peer");
    const LocalTensor& tensor = parts.tensors[i];
    require_tensor(group, tensor, exchange.dtype, {what, i});
    if (tensor.device() != exchange.device)
      refuse(fmt::format("{}[{}] is on {}, and the exchange on {}", what, i,
                         tensor.device().to_string(), exchange.device.to_string()),
             "", "move the tensor");
  }
  refuse(fmt::format("{} of rank {} has the peers [{}]", what, group.rank,
                     fmt::join(parts.peers, ", ")),
         "each stands there once, this rank does not, and they begin at its right neighbour",
         "give the ranks after this one in their order, then those before it");
}

void refuse_counts(NamedCount a, NamedCount b) {
  refuse(fmt::format("{} has {} elements, {} has {}", a.name.to_string(), a.count,
                     b.name.to_string(), b.count));
}

void require_image(NamedTensor output, NamedTensor input) {
  const LocalTensor &to = output.tensor, &from = input.tensor;
  if (to.shape() != from.shape())
    refuse(fmt::format("{} has the shape [{}], {} has [{}]", output.name.to_string(),
                       fmt::join(to.shape(), ", "), input.name.to_string(),
                       fmt::join(from.shape(), ", ")));
  // Ranges of addresses are compared, from the first element to the last. Two strided views that
  // interleave without a common element are refused, too: to tell them apart would cost more than
  // it is worth in each call.
  if (to.storage() != from.storage() || to.numel() == 0) return;
  const auto end = [](const LocalTensor& tensor) {
    const char* last = static_cast<const char*>(tensor.data());
    for (std::size_t dim = 0; dim < tensor.shape().size(); ++dim)
      last += (tensor.shape()[dim] - 1) * tensor.strides()[dim] *
              static_cast<std::int64_t>(tensors::item_size(tensor.dtype()));
    return last;
  };
  const bool are_one = to.data() == from.data() && to.strides() == from.strides();
  if (!are_one && end(to) >= from.data() && end(from) >= to.data())
    refuse(
        fmt::format("{} and {} overlap in memory", output.name.to_string(), input.name.to_string()),
        "what is written would be read as this rank's term",
        "an output of its own, or the same tensor as both");
}

void refuse_rows(NamedTensor a, NamedTensor b) {
  refuse(fmt::format("{} has the shape [{}], {} has [{}]", a.name.to_string(),
                     fmt::join(a.tensor.shape(), ", "), b.name.to_string(),
                     fmt::join(b.tensor.shape(), ", ")),
         "they may differ in dim 0 only");
}

void refuse_list(NamedList all, NamedRank root) {
  refuse(fmt::format("{} has {} tensors on a rank that is not the {}", all.name, all.tensors.size(),
                     root.name),
         "", fmt::format("pass an empty list everywhere but at the {}", root.name));
}

void require_sizes(const GroupShape& group, NamedTensor whole,
                   const std::vector<std::int64_t>& sizes, std::string_view what) {
  if (whole.tensor.dim() == 0)
    refuse(fmt::format("{} has no dims to split", whole.name.to_string()));
  const std::int64_t rows = whole.tensor.size(0);
  if (sizes.empty()) {
    if (rows % group.size != 0)
      refuse(fmt::format("{} has {} rows, which {} ranks cannot share evenly",
                         whole.name.to_string(), rows, group.size),
             "", fmt::format("give {}", what));
    return;
  }
  if (sizes.size() != static_cast<std::size_t>(group.size))
    refuse(
        fmt::format("{} has {} entries, and the group {} ranks", what, sizes.size(), group.size));
  std::int64_t sum = 0;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] < 0) refuse(fmt::format("{}[{}] is {}", what, rank, sizes[rank]));
    // This also keeps the sum from overflowing.
    if (sizes[rank] > rows)
      refuse(fmt::format("{}[{}] is {}, and {} has {} rows", what, rank, sizes[rank],
                         whole.name.to_string(), rows));
    sum += sizes[rank];
  }
  if (sum != rows)
    refuse(fmt::format("{} are {} rows together, and {} has {}", what, sum, whole.name.to_string(),
                       rows));
}

void require_reduce_op(ReduceOp op, DType dtype) {
  if (!reduce_op_supports(op, dtype))
    refuse(fmt::format("{} tensors cannot be reduced by {}", dtype_name(dtype), reduce_op_name(op)),
           op == ReduceOp::avg          ? "truth values have no mean"
           : op == ReduceOp::premul_sum ? "the factor is a real number: f64, f32, f16 and bf16"
                                        : "bits are for integers and bool");
}

namespace {

/// One side of a collective.
struct Side {
  std::span<const Buffer> buffers;
  std::string_view name;         ///< "the input"
  std::string_view preposition;  ///< " for" a rank
  const std::span<const int>* peers;

  /// Of this rank's own part; -1: none.
  int own(int rank, int size) const {
    if (peers != nullptr) return -1;
    return buffers.size() == static_cast<std::size_t>(size) ? rank : 0;
  }
  std::string name_of(std::size_t index) const {
    if (buffers.size() == 1 && peers == nullptr) return std::string(name);
    const int peer = peers == nullptr ? static_cast<int>(index) : (*peers)[index];
    return fmt::format("{}{} rank {}", name, preposition, peer);
  }
};

}  // namespace

void require_each_apart(const CollectiveView& collective, int rank, int size) {
  const PartPeers* const peers = collective.peers;
  const Side from{collective.inputs, "the input", " for",
                  peers == nullptr ? nullptr : &peers->of_inputs};
  const Side to{collective.outputs, "the output", " of",
                peers == nullptr ? nullptr : &peers->of_outputs};
  const int own_input = from.own(rank, size), own_output = to.own(rank, size);
  for (std::size_t i = 0; i < from.buffers.size(); ++i)
    for (std::size_t o = 0; o < to.buffers.size(); ++o) {
      const Buffer &input = from.buffers[i], &output = to.buffers[o];
      const bool are_own = static_cast<int>(i) == own_input && static_cast<int>(o) == own_output;
      const bool are_one = input.data == output.data && input.count == output.count;
      if (!overlap(input, output) || (are_own && are_one)) continue;
      refuse(fmt::format("{} and {} of {} overlap in memory", from.name_of(i), to.name_of(o),
                         op_kind_name(collective.kind())),
             "what comes from the others would be written over what this rank gives",
             peers != nullptr ? "give outputs of their own"
                              : "give outputs of their own; only the part that this rank keeps may "
                                "be one and the same as its input");
    }
}

std::uint64_t hash_bytes(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash == 0 ? 1 : hash;
}

Buffer CallBuffers::keep(const LocalTensor& contiguous) {
  kept_.push_back(contiguous);
  return buffer_of(contiguous);
}

void CallBuffers::copy_back(const LocalTensor& target, const LocalTensor& temporary) {
  copies_.emplace_back(target, temporary);
}

Buffer CallBuffers::input(const LocalTensor& tensor) {
  return keep(tensor.contiguous());
}

// Backends write contiguous memory only. The result goes back into the strided tensor when the call
// is over.
Buffer CallBuffers::output(const LocalTensor& tensor) {
  if (tensor.is_contiguous()) return keep(tensor);
  const LocalTensor temporary =
      tensors::empty(tensor.shape(), {.dtype = tensor.dtype(), .device = tensor.device()});
  copy_back(tensor, temporary);
  return keep(temporary);
}

Buffer CallBuffers::in_place(const LocalTensor& tensor) {
  const LocalTensor contiguous = tensor.contiguous();
  if (!tensor.is_contiguous()) copy_back(tensor, contiguous);
  return keep(contiguous);
}

std::vector<Buffer> CallBuffers::inputs(std::span<const LocalTensor> list) {
  std::vector<Buffer> buffers;
  buffers.reserve(list.size());
  for (const LocalTensor& tensor : list) buffers.push_back(input(tensor));
  return buffers;
}

std::vector<Buffer> CallBuffers::outputs(std::span<const LocalTensor> list) {
  std::vector<Buffer> buffers;
  buffers.reserve(list.size());
  for (const LocalTensor& tensor : list) buffers.push_back(output(tensor));
  return buffers;
}

void CallBuffers::attach_to(Call& call) && {
  // The caller may drop its tensors while an asynchronous call still works on their memory.
  call.keep_alive = std::make_shared<std::vector<LocalTensor>>(std::move(kept_));
  if (copies_.empty()) return;
  call.finish = [copies = std::move(copies_)] {
    for (const auto& [target, temporary] : copies) target.copy_(temporary);
  };
}

}  // namespace dtrun::collectives
