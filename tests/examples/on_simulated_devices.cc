// Linked with an example: its process has two simulated CUDA devices from the start, and the
// backend "simulated" for them.
#include "dtensor/simulated_staging.h"
#include "tensor/simulated_devices.h"

namespace dtrun::tensors::cuda {
namespace {

struct FromTheStart {
  FromTheStart() { dtensor::register_simulated_staging(); }
  SimulatedDevices devices;
};
const FromTheStart from_the_start;

}  // namespace
}  // namespace dtrun::tensors::cuda
