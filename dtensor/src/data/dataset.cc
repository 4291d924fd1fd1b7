#include "dtrun/dtensor/data/dataset.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor::data {

using base::Error;
using base::ErrorCode;

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

// Read by default. In a mapping, a file that becomes shorter is a SIGBUS and no error: at() looks
// at the length first, but the file may lose its end between that look and the use.
class TokenFile::File {
 public:
  /// Opened without waiting: a pipe without a writer would keep it waiting for ever.
  File(const std::string& path, bool is_mapped)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status {};
    if (!fd_ || ::fstat(fd_.get(), &status) != 0) {
      const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kSystem;
      throw Error(code, "cannot open the token file " + path, std::strerror(errno),
                  "the path of a file of tokens that may be read");
    }
    if (!S_ISREG(status.st_mode)) {
      throw Error(ErrorCode::kInvalidArgument, "the token file " + path + " is no regular file",
                  "samples are read at any place of it", "the path of a file of tokens");
    }
    bytes_ = status.st_size;
    if (is_mapped && bytes_ > 0) map();
  }
  ~File() {
    if (mapped_ != nullptr) ::munmap(mapped_, static_cast<std::size_t>(bytes_));
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t bytes() const { return bytes_; }

  /// The bytes from `offset` on, which lie within bytes(): in the mapping, or read into `buffer`.
  const char* at(std::int64_t offset, std::size_t count, std::vector<char>& buffer) const {
    if (mapped_ == nullptr) {
      buffer.resize(count);
      read(offset, buffer.data(), count);
      return buffer.data();
    }
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0) throw base::system_error("stat " + path_);
    if (status.st_size < bytes_) throw is_shorter(status.st_size);
    return static_cast<const char*>(mapped_) + offset;
  }

 private:
  void map() {
    void* const mapped =
        ::mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ, MAP_SHARED, fd_.get(), 0);
    if (mapped == MAP_FAILED) throw base::system_error("map " + path_ + " into memory");
    mapped_ = mapped;
  }

  void read(std::int64_t offset, char* to, std::size_t count) const {
    while (count > 0) {
      const ssize_t got = ::pread(fd_.get(), to, count, offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw base::system_error("read " + path_);
      if (got == 0) throw is_shorter(offset);
      to += got;
      offset += got;
      count -= static_cast<std::size_t>(got);
    }
  }

  Error is_shorter(std::int64_t end) const {
    return Error(ErrorCode::kSystem, path_ + " is shorter than it was",
                 "it had " + std::to_string(bytes_) + " bytes and has none at " +
                     std::to_string(end) + " now",
                 "write a new file and rename() it, instead of writing to one that is read");
  }

  const std::string path_;
  const base::UniqueFd fd_;
  std::int64_t bytes_ = 0;
  void* mapped_ = nullptr;  ///< nullptr: it is read
};

namespace {

struct TokenKind {
  const char* name;
  std::int64_t bytes;
  /// Tokens as they lie in a file, to numbers.
  void (*widen)(const char* from, std::int64_t count, std::int64_t* to);
};

template <typename T>
void widen(const char* from, std::int64_t count, std::int64_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    T token;
    std::memcpy(&token, from + i * static_cast<std::int64_t>(sizeof token), sizeof token);
    to[i] = static_cast<std::int64_t>(token);
  }
}

TokenKind kind_of(TokenType type) {
  switch (type) {
    case TokenType::u8:
      return {"u8", 1, widen<std::uint8_t>};
    case TokenType::u16:
      return {"u16", 2, widen<std::uint16_t>};
    case TokenType::i32:
      return {"i32", 4, widen<std::int32_t>};
    case TokenType::i64:
      return {"i64", 8, widen<std::int64_t>};
  }
  DT_CHECK(false);
}

void check_range(const TokenFileOptions& options, std::int64_t bytes) {
  const bool is_within = options.skip_bytes >= 0 && options.skip_bytes <= bytes;
  if (options.context > 0 && options.stride > 0 && is_within) return;
  throw Error(ErrorCode::kInvalidArgument,
              "TokenFile with a context of " + std::to_string(options.context) + ", a stride of " +
                  std::to_string(options.stride) + " and " + std::to_string(options.skip_bytes) +
                  " bytes to skip",
              "lengths are at least 1, and the file has " + std::to_string(bytes) + " bytes",
              "{.context = 256, .token = TokenType::u16}");
}

}  // namespace

TokenFile::TokenFile(const std::string& path, TokenFileOptions options)
    : options_(options), file_(std::make_shared<File>(path, options.mapped)) {
  if (options_.stride == 0) options_.stride = options_.context;
  check_range(options_, file_->bytes());
  const TokenKind kind = kind_of(options_.token);
  const std::int64_t bytes = file_->bytes() - options_.skip_bytes;
  if (bytes % kind.bytes != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                path + ": " + std::to_string(bytes) + " bytes are no whole number of " + kind.name +
                    " tokens",
                "the file is cut short, or is of another kind",
                "the type that it was written as, and its header's length: {.token = "
                "TokenType::u16, .skip_bytes = ...}");
  }
  tokens_ = bytes / kind.bytes;
  if (tokens_ > options_.context) samples_ = (tokens_ - options_.context - 1) / options_.stride + 1;
  if (samples_ > 0) return;
  throw Error(ErrorCode::kInvalidArgument, path + " has " + std::to_string(tokens_) + " tokens",
              "a sample takes " + std::to_string(options_.context) + " and one that follows",
              "a longer file, or a shorter context");
}

Tensors TokenFile::get(std::int64_t index) const {
  if (index < 0 || index >= samples_) {
    throw Error(ErrorCode::kInvalidArgument,
                "sample " + std::to_string(index) + " of " + std::to_string(samples_) + " of " +
                    file_->path(),
                "", "a number from 0, below size()");
  }
  const TokenKind kind = kind_of(options_.token);
  std::vector<char> buffer;
  const char* const bytes =
      file_->at(options_.skip_bytes + index * options_.stride * kind.bytes,
                static_cast<std::size_t>((options_.context + 1) * kind.bytes), buffer);
  Tensors sample;
  for (const std::int64_t shift : {0, 1}) {
    const tensors::LocalTensor text = tensors::empty({options_.context}, {DType::i64});
    kind.widen(bytes + shift * kind.bytes, options_.context, text.data_as<std::int64_t>());
    sample.emplace_back(text);
  }
  return sample;
}

}  // namespace dtrun::dtensor::data
