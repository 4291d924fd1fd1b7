// PlannedCall: a collective that nobody makes, of which ProcessGroup::bytes_to_send() tells the
// bytes. A value.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrun/collectives/fingerprint.h"
#include "dtrun/tensor/dtype.h"

namespace dtrun::collectives {

struct PlannedCall {
  OpKind kind = OpKind::none;
  tensors::DType dtype = tensors::DType::f32;
  int root = -1;
  /// Elements of this rank's buffers, as Collective lists them (backend.h).
  std::vector<std::int64_t> inputs = {};
  std::vector<std::int64_t> outputs = {};
  /// Ranks of the group, this one among them: the call is that of a group of these, which need not
  /// be made. Empty: of the group itself.
  std::vector<int> members = {};
};

/// What that rank of so many would send where no group exists: of the backend cpu, on one machine
/// that has a core for each. Pure. @param call its members do not count
std::int64_t bytes_on_one_machine(const PlannedCall& call, int rank, int ranks);

}  // namespace dtrun::collectives
