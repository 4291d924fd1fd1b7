#include "dtrun/dtensor/nn/embedding.h"

#include "autograd/deferred.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/nn/init.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/index.h"

namespace dtrun::dtensor::nn {
namespace {

std::optional<std::int64_t> checked_padding(std::optional<std::int64_t> index, std::int64_t rows) {
  if (!index) return index;
  if (*index >= -rows && *index < rows) return *index < 0 ? *index + rows : *index;
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    "an Embedding of " + std::to_string(rows) + " rows with padding_idx " +
                        std::to_string(*index),
                    "it is none of them", "one from 0 to " + std::to_string(rows - 1));
}

}  // namespace

EmbeddingModule::EmbeddingModule(std::int64_t rows, std::int64_t columns, EmbeddingOptions options)
    : num_embeddings(rows),
      embedding_dim(columns),
      padding_idx(checked_padding(options.padding_idx, rows)),
      weight(
          register_parameter("weight", empty({rows, columns}, {options.dtype, options.device}))) {
  reset_parameters();
}

void EmbeddingModule::reset_parameters() const {
  init::normal_(weight);
  if (!padding_idx) return;
  Deferred::write(weight, 0, [rows = num_embeddings, padding = *padding_idx](const Tensor& table) {
    const NoGrad no_grad;
    const Tensor numbers =
        table.is_distributed()
            ? arange(rows, table.device_mesh(), Placements(table.placements().size(), Replicate()))
            : arange(rows, {.dtype = DType::i64, .device = table.device()});
    table.copy_(table.masked_fill(numbers.eq(padding).unsqueeze(1), 0));
  });
}

Tensor EmbeddingModule::forward(const Tensor& positions) {
  return embedding(positions, weight, padding_idx);
}

std::string EmbeddingModule::extra_repr() const {
  return std::to_string(num_embeddings) + ", " + std::to_string(embedding_dim) +
         (padding_idx ? ", padding_idx=" + std::to_string(*padding_idx) : "");
}

}  // namespace dtrun::dtensor::nn
