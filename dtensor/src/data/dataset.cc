#include "dtrun/dtensor/data/dataset.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor::data {

using base::Error;
using base::ErrorCode;

namespace {

std::int64_t bytes_of(TokenType type) {
  switch (type) {
    case TokenType::u8:
      return 1;
    case TokenType::u16:
      return 2;
    case TokenType::i32:
      return 4;
    case TokenType::i64:
      return 8;
  }
  DT_CHECK(false);
}

}  // namespace

TensorDataset::TensorDataset(Tensors tensors) : tensors_(std::move(tensors)) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, "TensorDataset " + what, "",
                "local tensors with as many rows, such as samples and their classes");
  };
  if (tensors_.empty()) refuse("of no tensors");
  for (const Tensor& tensor : tensors_) {
    if (tensor.is_distributed()) refuse("of " + tensor.spec().to_string());
    if (tensor.dim() == 0) refuse("of a single number");
    if (tensor.size(0) != tensors_[0].size(0)) {
      refuse("of " + std::to_string(tensors_[0].size(0)) + " and " +
             std::to_string(tensor.size(0)) + " rows");
    }
  }
}

Tensors TensorDataset::get(std::int64_t index) const {
  Tensors sample;
  for (const Tensor& tensor : tensors_) sample.emplace_back(tensor.local().select(0, index));
  return sample;
}

class TokenFile::Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const base::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) {
      const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kSystem;
      throw Error(code, "cannot open the token file " + path, std::strerror(errno),
                  "the path of a file of tokens");
    }
    bytes_ = static_cast<std::size_t>(status.st_size);
    if (bytes_ == 0) return;
    data_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.get(), 0);
    if (data_ == MAP_FAILED) throw base::system_error("map " + path + " into memory");
  }
  ~Mapping() {
    if (bytes_ > 0) ::munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }
  const char* data() const { return static_cast<const char*>(data_); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

TokenFile::TokenFile(const std::string& path, TokenFileOptions options)
    : options_(options), mapping_(std::make_shared<Mapping>(path)) {
  if (options_.stride == 0) options_.stride = options_.context;
  if (options_.context < 1 || options_.stride < 1 || options_.skip_bytes < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "TokenFile with a context of " + std::to_string(options_.context) +
                    ", a stride of " + std::to_string(options_.stride) + " and " +
                    std::to_string(options_.skip_bytes) + " bytes to skip",
                "lengths are at least 1", "{.context = 256, .token = TokenType::u16}");
  }
  const std::int64_t item = bytes_of(options_.token);
  tokens_ = std::max<std::int64_t>(0, mapping_->bytes() - options_.skip_bytes) / item;
  if (tokens_ > options_.context) samples_ = (tokens_ - options_.context - 1) / options_.stride + 1;
  if (samples_ > 0) return;
  throw Error(ErrorCode::kInvalidArgument, path + " has " + std::to_string(tokens_) + " tokens",
              "a sample takes " + std::to_string(options_.context + 1) +
                  ": the context and what follows it",
              "a longer file, or a shorter context");
}

std::int64_t TokenFile::token(std::int64_t index) const {
  const auto read = [&]<typename T>(T value) -> std::int64_t {
    std::memcpy(
        &value,
        mapping_->data() + options_.skip_bytes + index * static_cast<std::int64_t>(sizeof value),
        sizeof value);
    return static_cast<std::int64_t>(value);
  };
  switch (options_.token) {
    case TokenType::u8:
      return read(std::uint8_t{});
    case TokenType::u16:
      return read(std::uint16_t{});
    case TokenType::i32:
      return read(std::int32_t{});
    case TokenType::i64:
      return read(std::int64_t{});
  }
  DT_CHECK(false);
}

Tensors TokenFile::get(std::int64_t index) const {
  const std::int64_t first = index * options_.stride;
  Tensors sample;
  for (const std::int64_t shift : {0, 1}) {
    const tensors::LocalTensor text = tensors::empty({options_.context}, {DType::i64});
    for (std::int64_t i = 0; i < options_.context; ++i)
      text.data_as<std::int64_t>()[i] = token(first + shift + i);
    sample.emplace_back(text);
  }
  return sample;
}

}  // namespace dtrun::dtensor::data
