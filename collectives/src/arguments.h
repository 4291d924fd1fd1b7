// What ProcessGroup does with a call's tensors before a Backend sees them: checks them, makes them
// contiguous, and keeps what must live until the operation is done.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/fingerprint.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::collectives {

using tensors::Tensor;

/// The group's side of the checks.
struct GroupShape {
  int rank;
  int size;
  tensors::DeviceType device;
  std::string_view backend;  ///< its name, for messages
};

// All throw Error kInvalidArgument naming the argument.
void require_tensor(const GroupShape& group, const Tensor& tensor, std::string_view what);
void require_rank(const GroupShape& group, int rank, std::string_view what);
/// One tensor per rank, all of that dtype.
void require_list(const GroupShape& group, const std::vector<Tensor>& list, tensors::DType dtype,
                  std::string_view what);
/// No tensors: the list belongs to the root alone.
void require_no_list(const std::vector<Tensor>& list, std::string_view what, std::string_view root);
void require_same_count(const Tensor& a, std::string_view what_a, const Tensor& b,
                        std::string_view what_b);
void require_reduce_op(ReduceOp op, tensors::DType dtype);

/// Never 0; equal for equal lists of counts.
std::uint64_t hash_counts(const std::vector<Tensor>& list);
/// Of the sizes per dim; never 0.
std::uint32_t hash_shape(const Tensor& tensor);
/// Of anything that all ranks must pass alike.
std::uint64_t hash_bytes(std::string_view bytes);

/// A call's buffers: contiguous, with copies where the tensors are not.
class Staging {
 public:
  Buffer input(const Tensor& tensor);
  Buffer output(const Tensor& tensor);
  Buffer in_place(const Tensor& tensor);
  std::vector<Buffer> inputs(const std::vector<Tensor>& list);
  std::vector<Buffer> outputs(const std::vector<Tensor>& list);
  /// Hands everything over to the call.
  void attach_to(Call& call) &&;

 private:
  Buffer keep(const Tensor& contiguous);
  void copy_back(const Tensor& target, const Tensor& temporary);

  std::vector<Tensor> kept_;
  std::vector<std::pair<Tensor, Tensor>> copies_;  ///< target, temporary
};

}  // namespace dtrun::collectives
