#include "dtrun/runtime/dist_objects.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cstring>

#include "current_world.h"
#include "dtrun/base/json.h"
#include "dtrun/runtime/dist_json.h"
#include "dtrun/tensor/ops.h"
#include "recording.h"

namespace dtrun::dist {
namespace {

using base::Error;
using base::ErrorCode;
using tensors::DType;
using tensors::LocalTensor;

OpOptions op_options(const ObjectOptions& options) {
  require_no_recording(options.group, "a call of objects");
  return {.group = options.group, .timeout = options.timeout};
}

/// Where the group's tensors have to be.
tensors::Device object_device(const ProcessGroup& group) {
  return chosen(group).serves(tensors::DeviceType::cpu) ? tensors::kCpu : device();
}

LocalTensor room(std::int64_t bytes, const ProcessGroup& group) {
  return tensors::zeros({bytes}, {DType::u8, object_device(group)});
}

LocalTensor numbers(const std::vector<std::int64_t>& values, const ProcessGroup& group) {
  const auto count = static_cast<std::int64_t>(values.size());
  return tensors::tensor_from(values, {count}, DType::i64).to(object_device(group));
}

std::vector<std::int64_t> sizes_of(const ObjectList& objects) {
  std::vector<std::int64_t> sizes;
  for (const std::string& object : objects)
    sizes.push_back(static_cast<std::int64_t>(object.size()));
  return sizes;
}

/// In a tensor of at least as many bytes.
LocalTensor as_tensor(const std::string& bytes, std::int64_t room_for, const ProcessGroup& group) {
  const LocalTensor tensor = tensors::zeros({room_for}, {DType::u8});
  std::memcpy(tensor.data(), bytes.data(), bytes.size());
  return tensor.to(object_device(group));
}

std::string as_bytes(const LocalTensor& tensor, std::int64_t size) {
  const LocalTensor here = tensor.to(tensors::kCpu);
  return {here.data_as<char>(), static_cast<std::size_t>(size)};
}

std::string joined(const ObjectList& objects) {
  std::string all;
  for (const std::string& object : objects) all += object;
  return all;
}

ObjectList cut(const std::string& all, const std::vector<std::int64_t>& sizes) {
  ObjectList objects;
  std::size_t at = 0;
  for (const std::int64_t size : sizes) {
    objects.push_back(all.substr(at, static_cast<std::size_t>(size)));
    at += static_cast<std::size_t>(size);
  }
  return objects;
}

std::int64_t total(const std::vector<std::int64_t>& sizes) {
  std::int64_t sum = 0;
  for (const std::int64_t size : sizes) sum += size;
  return sum;
}

/// Every rank's number of bytes, on every rank.
std::vector<std::int64_t> all_sizes(const std::string& object, const ObjectOptions& options,
                                    const Site& site) {
  const LocalTensor own = numbers({static_cast<std::int64_t>(object.size())}, options.group);
  const LocalTensor all =
      tensors::zeros({get_world_size(options.group)}, {DType::i64, own.device()});
  all_gather_into_tensor(all, own, op_options(options), site);
  return all.to_vector_i64();
}

}  // namespace

void refuse_object_size(std::size_t found, std::size_t expected) {
  throw Error(ErrorCode::kProtocol,
              fmt::format("an object of {} bytes where {} were due", found, expected),
              "another rank sent a value of another type", "one type on all ranks");
}

ObjectList broadcast_bytes(const ObjectList& objects, int src, const ObjectOptions& options,
                           const Site& site) {
  const LocalTensor sizes = numbers(sizes_of(objects), options.group);
  broadcast(sizes, src, op_options(options), site);
  const std::vector<std::int64_t> its = sizes.to_vector_i64();
  if (total(its) == 0) return ObjectList(objects.size());
  const bool is_source = get_rank() == src;
  const LocalTensor bytes = is_source ? as_tensor(joined(objects), total(its), options.group)
                                      : room(total(its), options.group);
  broadcast(bytes, src, op_options(options), site);
  return is_source ? objects : cut(as_bytes(bytes, total(its)), its);
}

ObjectList all_gather_bytes(const std::string& object, const ObjectOptions& options,
                            const Site& site) {
  const std::vector<std::int64_t> sizes = all_sizes(object, options, site);
  if (total(sizes) == 0) return ObjectList(sizes.size());
  std::vector<Tensor> parts;
  for (const std::int64_t size : sizes) parts.push_back(room(size, options.group));
  const auto own = static_cast<std::int64_t>(object.size());
  all_gather(parts, as_tensor(object, own, options.group), op_options(options), site);
  ObjectList objects;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank)
    objects.push_back(as_bytes(parts[rank].local(), sizes[rank]));
  return objects;
}

ObjectList gather_bytes(const std::string& object, int dst, const ObjectOptions& options,
                        const Site& site) {
  const std::vector<std::int64_t> sizes = all_sizes(object, options, site);
  const std::int64_t most = *std::max_element(sizes.begin(), sizes.end());
  const bool is_destination = get_rank() == dst;
  if (most == 0 && is_destination) return ObjectList(sizes.size());
  if (most == 0) return {};
  std::vector<Tensor> parts;
  for (std::size_t rank = 0; is_destination && rank < sizes.size(); ++rank)
    parts.push_back(room(most, options.group));
  gather(as_tensor(object, most, options.group), parts, dst, op_options(options), site);
  ObjectList objects;
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    objects.push_back(as_bytes(parts[rank].local(), sizes[rank]));
  return objects;
}

std::string scatter_bytes(const ObjectList& objects, int src, const ObjectOptions& options,
                          const Site& site) {
  const auto ranks = static_cast<std::size_t>(get_world_size(options.group));
  const bool is_source = get_rank() == src;
  // A wrong list is told to all ranks, which wait for it: sizes of -1.
  const bool fits = !is_source || objects.size() == ranks;
  const LocalTensor sizes = numbers(
      is_source && fits ? sizes_of(objects) : std::vector<std::int64_t>(ranks, -1), options.group);
  broadcast(sizes, src, op_options(options), site);
  const std::vector<std::int64_t> its = sizes.to_vector_i64();
  if (its[0] < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("scatter_object_list: rank {} has not one object for each of {} ranks",
                            src, ranks),
                is_source ? fmt::format("it gave {}", objects.size()) : "",
                "as many objects as the group has ranks");
  }
  const std::int64_t most = *std::max_element(its.begin(), its.end());
  if (most == 0) return "";
  std::vector<Tensor> parts;
  if (is_source) {
    for (const std::string& object : objects)
      parts.push_back(as_tensor(object, most, options.group));
  }
  const LocalTensor own = room(most, options.group);
  scatter(own, parts, src, op_options(options), site);
  return as_bytes(own, its[static_cast<std::size_t>(get_rank(options.group))]);
}

void send_bytes(const ObjectList& objects, int dst, const MessageOptions& options,
                const Site& site) {
  const std::vector<std::int64_t> sizes = sizes_of(objects);
  send(numbers(sizes, options.group), dst, options, site);
  if (total(sizes) == 0) return;
  send(as_tensor(joined(objects), total(sizes), options.group), dst, options, site);
}

ReceivedBytes receive_bytes(std::size_t count, int src, const MessageOptions& options,
                            const Site& site) {
  const LocalTensor sizes = numbers(std::vector<std::int64_t>(count, 0), options.group);
  const int source = recv(sizes, src, options, site);
  const std::vector<std::int64_t> its = sizes.to_vector_i64();
  if (total(its) == 0) return {ObjectList(count), source};
  const LocalTensor bytes = room(total(its), options.group);
  recv(bytes, source, options, site);
  return {cut(as_bytes(bytes, total(its)), its), source};
}

std::string ObjectBytes<boost::json::value>::to_bytes(const boost::json::value& value) {
  return boost::json::serialize(value);
}
boost::json::value ObjectBytes<boost::json::value>::from_bytes(std::string_view bytes) {
  return base::parse_json(bytes, "an object of another rank");
}

}  // namespace dtrun::dist
