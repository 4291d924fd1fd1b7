// Vector models: the modules that the cases of PyTorch's training vectors name, and their
// parameters on a mesh.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "dtensor/vector_tensor.h"
#include "dtrun/dtensor/nn/containers.h"
#include "dtrun/dtensor/nn/embedding.h"
#include "dtrun/dtensor/nn/linear.h"
#include "dtrun/dtensor/nn/norms.h"
#include "dtrun/dtensor/ops/attention.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/views.h"
#include "support/vector_file.h"

namespace dtrun::dtensor::vector_models {

inline double number(const boost::json::object& object, const char* name, double other = 0) {
  const boost::json::value* const found = object.if_contains(name);
  return found == nullptr || found->is_null() ? other : found->to_number<double>();
}
inline std::int64_t whole(const boost::json::object& object, const char* name,
                          std::int64_t other = 0) {
  return static_cast<std::int64_t>(number(object, name, static_cast<double>(other)));
}
inline std::string text(const boost::json::object& object, const char* name, const char* other) {
  const boost::json::value* const found = object.if_contains(name);
  return found == nullptr ? other : test::text_of(*found);
}
inline bool flag(const boost::json::object& object, const char* name) {
  const boost::json::value* const found = object.if_contains(name);
  return found != nullptr && found->as_bool();
}

inline std::vector<test::VectorCase> cases_of(const std::string& file, const std::string& op) {
  std::vector<test::VectorCase> chosen;
  for (test::VectorCase& example : test::read_vector_file(file)) {
    if (test::text_of(example.at("op")) == op) chosen.push_back(std::move(example));
  }
  return chosen;
}

/// Cut in turn along both axes, one, or none.
inline Tensor placed(const LocalTensor& numbers, const DeviceMesh* mesh, std::size_t which) {
  if (mesh == nullptr) return Tensor(numbers);
  const bool can = !numbers.shape().empty();
  const Placements placements = {can && which % 3 != 2 ? Placement(Shard(0)) : Replicate(),
                                 can && which % 3 == 0 ? Placement(Shard(-1)) : Replicate()};
  return distribute_tensor(Tensor(numbers), *mesh, placements, {.source_rank = -1});
}

inline void place_parameters(nn::Module& model, const DeviceMesh& mesh) {
  std::size_t which = 0;
  for (const auto& [path, module] : model.named_modules()) {
    for (const auto& [own, parameter] : module->own_parameters()) {
      if (parameter.is_distributed()) continue;  // of two modules
      const Tensor like = placed(parameter.local(), &mesh, which++);
      module->distribute_parameter(own, mesh, like.placements());
    }
  }
}

/// Whole, on all ranks of the mesh.
inline Tensor everywhere(const LocalTensor& numbers, const DeviceMesh* mesh) {
  if (mesh == nullptr) return Tensor(numbers);
  const Placements whole(static_cast<std::size_t>(mesh->ndim()), Replicate());
  return distribute_tensor(Tensor(numbers), *mesh, whole, {.source_rank = -1});
}

inline LocalTensor gathered(const Tensor& tensor) {
  return tensor.is_distributed() ? tensor.full_tensor().local() : tensor.local();
}

struct FeedForward : nn::Module {
  FeedForward(std::int64_t in, std::int64_t hidden, std::int64_t out, std::string activation)
      : act(std::move(activation)),
        fc1(register_module("fc1", nn::Linear(in, hidden))),
        fc2(register_module("fc2", nn::Linear(hidden, out))) {}
  Tensor forward(const Tensor& x) override { return fc2(activated(fc1(x))); }
  Tensor activated(const Tensor& x) const {
    if (act == "relu") return relu(x);
    if (act == "silu") return silu(x);
    return gelu(x, act == "gelu_tanh" ? GeluForm::tanh : GeluForm::erf);
  }
  const std::string act;
  nn::Linear fc1, fc2;
};
inline std::shared_ptr<FeedForward> mlp_of(const boost::json::object& config) {
  return std::make_shared<FeedForward>(whole(config, "in"), whole(config, "hidden"),
                                       whole(config, "out"), text(config, "act", "gelu"));
}

struct FusedAttention : nn::Module {
  FusedAttention(std::int64_t width, std::int64_t its_heads)
      : heads(its_heads),
        qkv(register_module("qkv", nn::Linear(width, 3 * width))),
        proj(register_module("proj", nn::Linear(width, width))) {}
  Tensor forward(const Tensor& x) override {
    const std::int64_t width = x.size(-1);
    const auto split = [&](const Tensor& all, int which) {
      return unflatten(all.narrow(-1, which * width, width), -1, {heads, width / heads})
          .transpose(1, 2);
    };
    const Tensor all = qkv(x);
    const Tensor mixed = scaled_dot_product_attention(split(all, 0), split(all, 1), split(all, 2),
                                                      {.is_causal = true});
    return proj(flatten(mixed.transpose(1, 2), 2));
  }
  const std::int64_t heads;
  nn::Linear qkv, proj;
};

inline std::shared_ptr<nn::Module> norm_of(const boost::json::object& config) {
  const Shape shape = config.contains("shape") ? test::sizes_of(config.at("shape"))
                                               : Shape{whole(config, "d_model")};
  const double eps = number(config, "eps", 1e-5);
  if (text(config, "norm", "layer_norm") == "layer_norm") return nn::LayerNorm(shape, {.eps = eps});
  return nn::RMSNorm(shape, {.eps = eps});
}

struct Block : nn::Module {
  /// @param config with d_model and heads, and norm, act and mult where they are not the usual ones
  explicit Block(const boost::json::object& config)
      : width(whole(config, "d_model")),
        ln1(register_module("ln1", norm_of(config))),
        attn(register_module("attn",
                             nn::ModuleHolder<FusedAttention>(width, whole(config, "heads")))),
        ln2(register_module("ln2", norm_of(config))),
        mlp(register_module(
            "mlp", nn::ModuleHolder<FeedForward>(width, whole(config, "mult", 4) * width, width,
                                                 text(config, "act", "gelu")))) {}
  Tensor forward(const Tensor& x) override {
    const Tensor y = x + attn((*ln1)(x));
    return y + mlp((*ln2)(y));
  }
  const std::int64_t width;
  std::shared_ptr<nn::Module> ln1;
  nn::ModuleHolder<FusedAttention> attn;
  std::shared_ptr<nn::Module> ln2;
  nn::ModuleHolder<FeedForward> mlp;
};

struct Gpt : nn::Module {
  explicit Gpt(const boost::json::object& config)
      : wte(register_module("wte",
                            nn::Embedding(whole(config, "vocab"), whole(config, "d_model")))),
        wpe(register_module("wpe",
                            nn::Embedding(whole(config, "context"), whole(config, "d_model")))),
        blocks(register_module("blocks", nn::ModuleList())),
        ln_f(register_module("ln_f", nn::LayerNorm(whole(config, "d_model")))),
        head(register_module("head", flag(config, "tied")
                                         ? nn::Linear(wte->weight)
                                         : nn::Linear(whole(config, "d_model"),
                                                      whole(config, "vocab"), {.bias = false}))) {
    for (std::int64_t i = 0; i < whole(config, "layers"); ++i)
      blocks->push_back(nn::ModuleHolder<Block>(config));
  }
  Tensor forward(const Tensor& tokens) override {
    Tensor positions = arange(tokens.size(-1));
    if (tokens.is_distributed()) {
      const DeviceMesh mesh = tokens.device_mesh();
      positions = everywhere(positions.local(), &mesh);
    }
    Tensor x = wte(tokens) + wpe(positions);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(blocks->size()); ++i)
      x = (*blocks)[i](x);
    return head(ln_f(x));
  }
  nn::Embedding wte, wpe;
  nn::ModuleList blocks;
  nn::LayerNorm ln_f;
  nn::Linear head;
};

}  // namespace dtrun::dtensor::vector_models
