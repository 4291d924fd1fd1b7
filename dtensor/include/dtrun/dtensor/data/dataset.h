// Dataset: samples by their number. torch.utils.data.Dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor::data {

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// The tensors of one sample, alike in shape and dtype for all samples. Called from a loader's
  /// thread; several loaders may share the set.
  virtual Tensors get(std::int64_t index) const = 0;
};

/// Row i of each tensor is sample i. torch.utils.data.TensorDataset.
class TensorDataset : public Dataset {
 public:
  /// @throws Error kInvalidArgument unless all are local, and have as many rows
  explicit TensorDataset(Tensors tensors);
  std::int64_t size() const override { return tensors_[0].size(0); }
  Tensors get(std::int64_t index) const override;

 private:
  const Tensors tensors_;
};

/// How a token is stored, little-endian; u16 is what GPT-2's data sets are prepared as.
enum class TokenType : unsigned char { u8, u16, i32, i64 };

struct TokenFileOptions {
  std::int64_t context = 0;  ///< tokens of a sample
  /// Tokens from one sample's beginning to the next one's; 0: the context, so that none overlap.
  std::int64_t stride = 0;
  TokenType token = TokenType::u8;
  std::int64_t skip_bytes = 0;  ///< a header
  /// Maps the file into memory and copies samples from there: no read per sample, and nothing is
  /// held twice. A file that becomes shorter while a sample is copied is a SIGBUS then.
  bool mapped = false;
};

/// A file of tokens: a sample is {text, next}, i64 [context] each, where next is what follows each
/// token of text. Only the bytes of a sample are read, and ranks share the page cache, whether the
/// file is read or mapped. Any number of threads may read it.
class TokenFile : public Dataset {
 public:
  /// @throws Error kNotFound, kSystem; kInvalidArgument for options out of their range, a file that
  /// is too short for one sample, and one that is no whole number of tokens
  TokenFile(const std::string& path, TokenFileOptions options);
  std::int64_t size() const override { return samples_; }
  /// @throws Error kInvalidArgument for a sample that it does not have, kSystem where the file has
  /// become shorter since
  Tensors get(std::int64_t index) const override;
  std::int64_t tokens() const { return tokens_; }

 private:
  class File;

  TokenFileOptions options_;
  std::shared_ptr<const File> file_;
  std::int64_t tokens_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace dtrun::dtensor::data
