#include "dtrun/runtime/dist.h"

#include <optional>

#include "dtrun/base/error.h"

namespace dtrun::dist {
namespace {

thread_local std::optional<runtime::Worker> the_worker;

}  // namespace

void init_process_group(InitProcessGroup options) {
  if (the_worker)
    throw base::Error(base::ErrorCode::kUsage,
                      "trying to initialize the default process group twice", "",
                      "call dist::destroy_process_group() first");
  runtime::InitOptions init;
  init.backend = std::move(options.backend);
  init.timeout = options.timeout;
  the_worker.emplace(runtime::init(std::move(init)));
}

void destroy_process_group() {
  current_worker();
  the_worker.reset();
}

bool is_initialized() {
  return the_worker.has_value();
}

runtime::Worker& current_worker() {
  if (!the_worker)
    throw base::Error(base::ErrorCode::kUsage, "the default process group has not been initialized",
                      "", "call dist::init_process_group() first, on this thread");
  return *the_worker;
}

int get_rank() {
  return current_worker().rank();
}
int get_world_size() {
  return current_worker().world_size();
}
std::string get_backend() {
  return current_worker().world().backend_name();
}

dtensor::DeviceMesh init_device_mesh(const std::string& device_type, std::vector<int> shape,
                                     std::vector<std::string> axis_names) {
  return {current_worker().world(), std::move(shape), std::move(axis_names),
          tensors::Device::parse(device_type).type};
}

void broadcast(const Tensor& tensor, int src, Site site) {
  current_worker().world().broadcast(tensor, src, {}, site);
}
void all_reduce(const Tensor& tensor, ReduceOp op, Site site) {
  current_worker().world().all_reduce(tensor, op, {}, site);
}
void send(const Tensor& tensor, int dst, Site site) {
  current_worker().world().send(tensor, dst, 0, {}, site);
}
int recv(const Tensor& tensor, int src, Site site) {
  return current_worker().world().recv(tensor, src, 0, {}, site);
}
void barrier(Site site) {
  current_worker().world().barrier({}, site);
}

}  // namespace dtrun::dist
