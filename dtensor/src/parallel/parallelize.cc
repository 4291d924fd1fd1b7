#include "dtrun/dtensor/parallel/parallelize.h"

#include <memory>
#include <sstream>

#include "autograd/random_part.h"
#include "dispatch/result_wish.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/dtensor/nn/embedding.h"
#include "dtrun/dtensor/nn/linear.h"
#include "move/cause.h"
#include "nn/model_agreement.h"
#include "parallel/module_names.h"
#include "parallel/one_axis.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

/// For whom tensors come to lie otherwise.
struct AppliedStyle {
  std::string text;  ///< "Rowwise of layers.0.down"
  Tensor::Site site;
};
AppliedStyle applied(const char* style, const std::string& path, const Tensor::Site& site) {
  return {std::string(style) + (path.empty() ? "" : " of " + path), site};
}

/// A plain tensor lies as `given` says; then it is brought to where it shall lie.
/// @param features of the whole tensor, where they are known: ranks may have uneven parts of them
Tensor brought(const AppliedStyle& by, const Tensor& tensor, const DeviceMesh& mesh,
               const Placement& given, const Placement& wanted,
               std::optional<std::int64_t> features = std::nullopt) {
  const Cause cause(by.text, Cause::Wish::asked, by.site);
  if (tensor.is_distributed()) return tensor.redistribute({wanted});
  FromLocalOptions options;
  const int last = static_cast<int>(tensor.dim()) - 1;
  if (features && last >= 0 && (given.is_shard(-1) || given.is_shard(last))) {
    options.shape = tensor.shape();
    options.shape.back() = *features;
    options.has_shape = true;
  }
  return Tensor::from_local(tensor, mesh, {given}, options).redistribute({wanted});
}

/// Where fully_shard() has given this rank samples of its own along this axis, a plain tensor is
/// not what all ranks have.
/// @param ranks the mesh's
void check_is_everywhere(nn::Module& module, const Tensor& tensor, const DeviceMesh& mesh,
                         const std::vector<int>& ranks) {
  for (const auto& standing : surroundings::standing()) {
    const auto* const part = dynamic_cast<const RandomPart*>(standing.get());
    if (part == nullptr || part->level != RandomPart::Level::samples) continue;
    if (!share_ranks(ranks, part->ranks)) continue;
    throw Error(ErrorCode::kUsage,
                "parallelize: " + module.name() + " was called with a plain tensor of shape " +
                    tensors::shape_to_string(tensor.shape()) +
                    ", which its style takes as Replicate() on " + mesh.to_string(),
                "these ranks have different samples, by fully_shard() or data_parallel()",
                "{.input = Shard(0), .output = Shard(0)} for samples; distribute_tensor() for what "
                "is the same on all ranks");
  }
}

Tensor given_as(const Tensor& tensor, Result result) {
  return result == Result::local ? tensor.to_local() : tensor;
}

/// The first input, and the first output, of a module, where there is one.
void hook(const AppliedStyle& by, nn::Module& module, const DeviceMesh& mesh,
          const Placement& given, const Placement& wanted, const Placement& output, Result result) {
  std::optional<std::int64_t> features;
  if (const auto* const linear = module.as<nn::Linear>()) features = linear->in_features;
  // The forward's end is told of one that a hook has refused, too.
  const auto begun = std::make_shared<int>(0);
  module.register_forward_pre_hook(
      [=, ranks = mesh.ranks()](nn::Module& called, const Tensors& inputs) {
        Tensors changed = inputs;
        if (!inputs.empty() && !inputs[0].is_distributed() && given.is_replicate())
          check_is_everywhere(called, inputs[0], mesh, ranks);
        if (!inputs.empty()) changed[0] = brought(by, inputs[0], mesh, given, wanted, features);
        ResultWish::enter({mesh, {output}});
        ++*begun;
        return changed;
      });
  module.register_forward_end_hook([begun](nn::Module&) {
    if (*begun == 0) return;
    --*begun;
    ResultWish::leave();
  });
  module.register_forward_hook([=](nn::Module&, const Tensors&, const Tensors& outputs) {
    Tensors changed = outputs;
    if (!outputs.empty())
      changed[0] = given_as(brought(by, outputs[0], mesh, output, output), result);
    return changed;
  });
}

void distribute(nn::Module& module, const DeviceMesh& mesh, const ParallelStyle::Layout& layout,
                const Tensor::Site& site) {
  for (const auto& [name, parameter] : module.own_parameters())
    module.distribute_parameter(name, mesh, {layout(module, name)}, site);
}

Placement columns(nn::Module& module, const std::string& parameter) {
  if (parameter == "bias") return Shard(0);
  if (parameter != "weight") return Replicate();
  return Shard(module.as<nn::Embedding>() != nullptr ? 1 : 0);
}
Placement rows(nn::Module& module, const std::string& parameter) {
  if (parameter != "weight") return Replicate();
  return Shard(module.as<nn::Embedding>() != nullptr ? 0 : 1);
}
Placement everywhere(nn::Module&, const std::string&) {
  return Replicate();
}

[[noreturn]] void refuse_kind(const char* style, const std::string& path, nn::Module& module) {
  throw Error(ErrorCode::kInvalidArgument,
              std::string(style) + " of \"" + path + "\", which is " + module.name(),
              "the style knows how to cut Linear and Embedding",
              "a ParallelStyle of your own, whose function calls distribute_parameter()");
}

bool knows(nn::Module& module) {
  return module.as<nn::Linear>() != nullptr || module.as<nn::Embedding>() != nullptr;
}

}  // namespace

ParallelStyle Colwise(StyleOptions options) {
  return {"Colwise",
          [options](const std::string& path, nn::Module& module, const DeviceMesh& mesh,
                    const Tensor::Site& site) {
            if (!knows(module)) refuse_kind("Colwise", path, module);
            distribute(module, mesh, columns, site);
            hook(applied("Colwise", path, site), module, mesh, options.input.value_or(Replicate()),
                 Replicate(), options.output.value_or(Shard(-1)), options.result);
          },
          columns};
}

ParallelStyle Rowwise(StyleOptions options) {
  return {"Rowwise",
          [options](const std::string& path, nn::Module& module, const DeviceMesh& mesh,
                    const Tensor::Site& site) {
            if (!knows(module)) refuse_kind("Rowwise", path, module);
            distribute(module, mesh, rows, site);
            const bool is_linear = module.as<nn::Linear>() != nullptr;
            const Placement input = is_linear ? Shard(-1) : Replicate();
            hook(applied("Rowwise", path, site), module, mesh, options.input.value_or(input), input,
                 options.output.value_or(Replicate()), options.result);
          },
          rows};
}

ParallelStyle Sequence(StyleOptions options) {
  return {"Sequence",
          [options](const std::string& path, nn::Module& module, const DeviceMesh& mesh,
                    const Tensor::Site& site) {
            distribute(module, mesh, everywhere, site);
            hook(applied("Sequence", path, site), module, mesh, options.input.value_or(Shard(1)),
                 options.input.value_or(Shard(1)), options.output.value_or(Shard(1)),
                 options.result);
          },
          everywhere};
}

namespace {

void check_prepared(const char* style, const PrepareOptions& options) {
  if (options.given.size() == options.wanted.size()) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(style) + " with " + std::to_string(options.given.size()) +
                  " placements given and " + std::to_string(options.wanted.size()) + " wanted",
              "each tensor has one of both", "std::nullopt leaves a tensor as it is");
}

Tensors prepared(const char* style, const AppliedStyle& by, const nn::Module& module,
                 const Tensors& tensors, const PrepareOptions& options, const DeviceMesh& mesh) {
  if (options.given.size() > tensors.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(style) + " of " + std::to_string(options.given.size()) +
                    " tensors at " + module.name() + ", which has " +
                    std::to_string(tensors.size()),
                "", "a placement for each of them");
  }
  Tensors changed = tensors;
  for (std::size_t i = 0; i < options.given.size(); ++i) {
    if (!options.given[i] || !tensors[i].defined()) continue;
    const Placement& given = *options.given[i];
    changed[i] = given_as(brought(by, tensors[i], mesh, given, options.wanted[i].value_or(given)),
                          options.result);
  }
  return changed;
}

}  // namespace

ParallelStyle PrepareInput(PrepareOptions options) {
  check_prepared("PrepareInput", options);
  return {"PrepareInput", [options](const std::string& path, nn::Module& module,
                                    const DeviceMesh& mesh, const Tensor::Site& site) {
            const AppliedStyle by = applied("PrepareInput", path, site);
            module.register_forward_pre_hook([=](nn::Module& called, const Tensors& inputs) {
              return prepared("PrepareInput", by, called, inputs, options, mesh);
            });
          }};
}

ParallelStyle PrepareOutput(PrepareOptions options) {
  check_prepared("PrepareOutput", options);
  return {"PrepareOutput", [options](const std::string& path, nn::Module& module,
                                     const DeviceMesh& mesh, const Tensor::Site& site) {
            const AppliedStyle by = applied("PrepareOutput", path, site);
            module.register_forward_hook(
                [=](nn::Module& called, const Tensors&, const Tensors& outputs) {
                  return prepared("PrepareOutput", by, called, outputs, options, mesh);
                });
          }};
}

ParallelStyle PrepareInputOutput(PrepareOptions input, PrepareOptions output) {
  const ParallelStyle first = PrepareInput(std::move(input));
  const ParallelStyle second = PrepareOutput(std::move(output));
  return {"PrepareInputOutput", [first, second](const std::string& path, nn::Module& module,
                                                const DeviceMesh& mesh, const Tensor::Site& site) {
            first.apply(path, module, mesh, site);
            second.apply(path, module, mesh, site);
          }};
}

Tensor loss_parallel(const Tensor& logits, const Tensor& target, LossOptions options,
                     Tensor::Site site) {
  const DeviceMesh mesh = logits.device_mesh();
  const Placements whole(logits.placements().size(), Replicate());
  const auto placed = [&](const Tensor& plain) {
    const bool is_there = !plain.defined() || plain.is_distributed();
    return is_there ? plain : Tensor::from_local(plain, mesh, whole);
  };
  options.weight = placed(options.weight);
  const Tensor loss = cross_entropy(logits, placed(target), options);
  const Cause cause("loss_parallel", Cause::Wish::asked, site);
  return loss.redistribute(whole).to_local();
}

namespace {

std::string text_of(const ParallelPlan& plan) {
  std::ostringstream text;
  for (const auto& [pattern, style] : plan)
    text << "the style " << style.name() << " for \"" << pattern << "\"\n";
  return text.str();
}

/// A module, and the style that a pattern gave it.
struct Step {
  std::string path;
  nn::Module* module;
  const std::string* pattern;
  const ParallelStyle* style;
};

/// A parameter's layout to come, and what asked for it.
struct Wish {
  Tensor parameter;
  Placement placement;
  std::string text;  ///< `Colwise makes "head.weight" Shard(0)`
};

[[noreturn]] void refuse_layouts(const std::string& one, const std::string& other) {
  throw Error(ErrorCode::kInvalidArgument,
              "parallelize: two layouts for one parameter: " + one + ", " + other,
              "they are one tensor, which lies in one way",
              "styles that agree: Rowwise of an Embedding and Colwise of a Linear both cut the "
              "weight's first dim");
}

/// Modules may have a tensor in common, and an earlier call may have cut it.
void check_layouts(const std::vector<Step>& steps, const DeviceMesh& mesh) {
  std::vector<Wish> wishes;
  for (const Step& step : steps) {
    if (!step.style->layout()) continue;
    for (const auto& [name, parameter] : step.module->own_parameters()) {
      const Placement placement = step.style->layout()(*step.module, name);
      const std::string full = step.path.empty() ? name : step.path + "." + name;
      const std::string text =
          step.style->name() + " makes \"" + full + "\" " + placement.to_string();
      for (const Wish& other : wishes) {
        if (same(other.parameter, parameter) && other.placement != placement)
          refuse_layouts(other.text, text);
      }
      if (parameter.is_distributed() &&
          parameter.spec() != make_spec(mesh, {placement}, parameter.shape(), parameter.dtype()))
        refuse_layouts("it is " + parameter.spec().to_string() + " already", text);
      wishes.push_back({parameter, placement, text});
    }
  }
}

}  // namespace

void parallelize(nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
                 Tensor::Site site) {
  // First: what follows refuses on all ranks, or on none.
  check_same_model("parallelize", module, group_of_one_axis("parallelize", mesh), site,
                   text_of(plan));
  std::vector<Step> steps;
  for (const auto& [pattern, style] : plan) {
    for (const auto& [path, within] : matching_modules("parallelize", module, pattern)) {
      for (const Step& other : steps) {
        if (other.module != within) continue;
        throw Error(ErrorCode::kInvalidArgument,
                    "parallelize: two styles for \"" + path + "\": " + other.style->name() +
                        " by \"" + *other.pattern + "\" and " + style.name() + " by \"" + pattern +
                        "\"",
                    "", "a narrower pattern for one of them");
      }
      const bool cuts = style.name() == "Colwise" || style.name() == "Rowwise";
      if (cuts && !knows(*within)) refuse_kind(style.name().c_str(), path, *within);
      steps.push_back({path, within, &pattern, &style});
    }
  }
  check_layouts(steps, mesh);
  for (const Step& step : steps) step.style->apply(step.path, *step.module, mesh, site);
}

}  // namespace dtrun::dtensor
