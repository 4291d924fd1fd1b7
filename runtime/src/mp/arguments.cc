#include <fmt/core.h>

#include <cstring>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/runtime/mp_arguments.h"
#include "exception_text.h"

namespace dtrun::mp::wire {

using dtensor::Tensor;
using tensors::LocalTensor;

std::string_view Reader::take(std::size_t bytes) {
  DT_CHECK(bytes <= rest_.size());
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

void reject_number(const std::string& number, const char* mangled_type) {
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    fmt::format("mp::args: the number {} does not fit in a parameter of type {}",
                                number, runtime::readable_type(mangled_type)),
                    "it would arrive as another number", "give the function a wider parameter");
}

void put(std::string& out, const std::string& text) {
  put(out, text.size());
  out += text;
}

void get(Reader& reader, std::string& text) {
  std::size_t size = 0;
  get(reader, size);
  text = reader.take(size);
}

void put(std::string& out, const Tensor& given) {
  const LocalTensor& tensor = given.plain_local();
  put(out, tensor.defined());
  if (!tensor.defined()) return;
  put(out, tensor.dtype());
  put(out, tensor.device().type);
  put(out, tensor.device().index);
  put(out, std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end()));
  const LocalTensor host = tensor.to(tensors::kCpu).contiguous();
  out.append(host.data_as<const char>(), host.bytes());
}

void get(Reader& reader, Tensor& tensor) {
  bool defined = false;
  get(reader, defined);
  if (!defined) return;
  tensors::DType dtype{};
  tensors::Device device;
  std::vector<std::int64_t> sizes;
  get(reader, dtype);
  get(reader, device.type);
  get(reader, device.index);
  get(reader, sizes);
  const tensors::Shape shape(sizes);
  std::size_t bytes = tensors::item_size(dtype);
  for (const std::int64_t size : sizes) bytes *= static_cast<std::size_t>(size);
  const auto storage = tensors::Storage::allocate(bytes, tensors::kCpu);
  const std::string_view elements = reader.take(bytes);
  if (bytes != 0) std::memcpy(storage->data(), elements.data(), bytes);
  tensor = LocalTensor(storage, dtype, shape, tensors::contiguous_strides(shape)).to(device);
}

}  // namespace dtrun::mp::wire
