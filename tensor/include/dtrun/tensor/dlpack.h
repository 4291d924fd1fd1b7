// DLPack: tensors of other libraries, and to them, without a copy (dlpack.h of version 0.6; bool as
// in 0.8 and later).
#pragma once

#include "dtrun/tensor/tensor.h"

struct DLManagedTensor;

namespace dtrun::tensors {

/// The elements of `tensor`, shared. The receiver runs the result's deleter once.
DLManagedTensor* to_dlpack(const LocalTensor& tensor);
/// The elements of `managed`, shared; its deleter runs when their last user is gone. Of a CUDA
/// device, what was queued before must be done or ordered before what follows, by the caller.
/// @throws Error kInvalidArgument for a device, an element type or a layout that dtrun does not
/// have, naming it; `managed` then stays the caller's
LocalTensor from_dlpack(DLManagedTensor* managed);

}  // namespace dtrun::tensors
