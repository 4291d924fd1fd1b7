#include "dtrun/dtensor/parallel/fully_shard.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/mesh/spec.h"
#include "nn/model_agreement.h"
#include "parallel/cut_in_forward.h"
#include "parallel/flat_layout.h"
#include "parallel/module_names.h"
#include "parallel/one_axis.h"
#include "parallel/part_hooks.h"
#include "parallel/shard_unit.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

/// A module, and the parameters that are its own as a unit.
struct UnitPlan {
  std::string path;
  nn::Module* module;
  nn::Module::NamedTensors parameters;
};

/// A parameter, and the innermost unit around one of the places in which it stands.
using ParameterPlace = std::pair<Tensor, std::size_t>;

/// A module that stands in several places is visited in each.
void append_places(nn::Module& module, std::size_t around, const std::vector<UnitPlan>& units,
                   std::vector<ParameterPlace>& places) {
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (units[i].module == &module) around = i;
  }
  for (const auto& [name, parameter] : module.own_parameters())
    places.emplace_back(parameter, around);
  for (const auto& [name, child] : module.named_children())
    append_places(*child, around, units, places);
}

/// The unit that all places agree upon, or the outermost.
std::size_t owner_of(const Tensor& parameter, const std::vector<ParameterPlace>& places) {
  std::optional<std::size_t> owner;
  for (const auto& [tensor, unit] : places) {
    if (!same(tensor, parameter)) continue;
    if (owner.value_or(unit) != unit) return 0;
    owner = unit;
  }
  return owner.value();
}

/// @param left what belongs to no unit
std::vector<UnitPlan> planned(nn::Module& module, const std::vector<std::string>& patterns,
                              const std::set<std::string>& left) {
  std::vector<UnitPlan> units = {{"", &module, {}}};
  for (const std::string& pattern : patterns) {
    for (const auto& [path, within] : matching_modules("fully_shard", module, pattern)) {
      const auto is_it = [&, it = within](const UnitPlan& unit) { return unit.module == it; };
      if (std::none_of(units.begin(), units.end(), is_it)) units.push_back({path, within, {}});
    }
  }
  std::vector<ParameterPlace> places;
  append_places(module, 0, units, places);
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (left.contains(name)) continue;
    units[owner_of(parameter, places)].parameters.emplace_back(name, parameter);
  }
  return units;
}

void check_has_parameters(const nn::Module& module) {
  if (!module.parameters().empty()) return;
  throw Error(ErrorCode::kInvalidArgument,
              "fully_shard of " + module.name() + ", which has no parameters", "",
              "use the module as it is");
}

ShardAxes checked_axes(const DeviceMesh& mesh) {
  if (mesh.ndim() == 1 || mesh.ndim() == 2) return {mesh};
  throw Error(
      ErrorCode::kInvalidArgument,
      "fully_shard on " + mesh.to_string() + ", which has " + std::to_string(mesh.ndim()) + " axes",
      "it works along one axis, or along two: replicate, shard",
      "a slice such as mesh[\"dp\"], or mesh[{\"replicate\", \"shard\"}]");
}

/// By a parameter's name: the dim along which it is cut, or FlatLayout::kNoDim.
using Dims = std::map<std::string, int>;

ParameterWishes wishes_of(const nn::Module& module, const FullyShardOptions& options) {
  ParameterWishes wishes;
  for (const auto& [name, parameter] : module.named_parameters()) {
    const auto told = [&, &of = name, &its = parameter](const auto& function) {
      return function ? function(of, its) : std::optional<Placement>();
    };
    const Placement compute = told(options.compute).value_or(Replicate());
    const Placement usual = compute.is_replicate() ? Shard(0) : compute;
    wishes.emplace(name, ParameterWish{told(options.storage).value_or(usual), compute});
  }
  return wishes;
}

/// What all ranks have to have asked for.
std::string text_of(const ParameterWishes& wishes) {
  std::string text;
  for (const auto& [name, wish] : wishes) {
    text += "the storage of \"" + name + "\", " + wish.storage.to_string() + ", computed as " +
            wish.compute.to_string() + "\n";
  }
  return text;
}

Dims cut_dims(const nn::Module& module, const ParameterWishes& wishes,
              const std::set<std::string>& left) {
  Dims dims;
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (left.contains(name)) continue;
    const Placement& wanted = wishes.at(name).storage;
    const int count = static_cast<int>(parameter.dim());
    if (wanted.is_replicate()) {
      dims[name] = FlatLayout::kNoDim;
      continue;
    }
    if (count == 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "fully_shard: \"" + name + "\" is a single number without dims",
                  "there is no dim to cut it along",
                  "a `storage` that gives Replicate() for it, or a shape of {1}");
    }
    const bool is_dim =
        wanted.is_shard() && !wanted.is_ragged() && wanted.dim() >= -count && wanted.dim() < count;
    if (!is_dim) {
      throw Error(ErrorCode::kInvalidArgument,
                  "fully_shard: storage of \"" + name + "\", of shape " +
                      tensors::shape_to_string(parameter.shape()) + ", as " + wanted.to_string(),
                  "each rank keeps a part of it, or all of it",
                  "Shard() of one of its dims, or Replicate()");
    }
    dims[name] = wanted.dim() < 0 ? wanted.dim() + count : wanted.dim();
  }
  return dims;
}

std::vector<ShardedBlock> blocks_of(const UnitPlan& plan, const ShardAxes& axes, const Dims& dims,
                                    const MixedPrecision& precision, const Tensor::Site& site) {
  // What is kept whole is not gathered: it lies in blocks of its own.
  std::map<std::pair<DType, bool>, std::vector<ShardedParameter>> alike;
  for (const auto& [name, parameter] : plan.parameters) {
    const Shape whole_here =
        parameter.is_deferred() ? parameter.shape() : parameter.local().shape();
    const int dim = dims.at(name);
    alike[{parameter.dtype(), dim == FlatLayout::kNoDim}].push_back(
        {name, parameter, parameter.spec(), whole_here, dim});
  }
  std::vector<ShardedBlock> blocks;
  for (auto& [kind, parameters] : alike)
    blocks.emplace_back(plan.path, std::move(parameters), axes, precision, site);
  return blocks;
}

Tensors cast(const Tensors& tensors, std::optional<DType> dtype) {
  Tensors all = tensors;
  for (Tensor& tensor : all) {
    if (dtype && tensor.defined() && tensors::is_floating_point(tensor.dtype()))
      tensor = tensor.to(*dtype);
  }
  return all;
}

void hook(nn::Module& module, const std::shared_ptr<ShardRun>& run,
          const std::shared_ptr<ShardUnit>& unit, const MixedPrecision& precision) {
  // The forward's end is told of a forward whose beginning has failed, too.
  const auto begun = std::make_shared<int>(0);
  module.register_forward_pre_hook([=](nn::Module&, const Tensors& inputs) {
    run->before_forward(*unit);
    ++*begun;
    return precision.cast_forward_inputs ? cast(inputs, precision.param) : Tensors();
  });
  module.register_forward_end_hook([=](nn::Module&) {
    if (*begun == 0) return;
    --*begun;
    run->after_forward(*unit);
  });
  const bool is_outermost = unit->path().empty();
  module.register_forward_hook([=](nn::Module&, const Tensors&, const Tensors& outputs) {
    const Tensors given = is_outermost ? cast(outputs, precision.output) : outputs;
    for (const Tensor& output : given) {
      if (!output.defined() || !output.requires_grad() || output.is_leaf()) continue;
      output.register_hook([run, unit](const Tensor&) {
        run->before_backward(*unit);
        return Tensor();
      });
    }
    return given;
  });
}

}  // namespace

void fully_shard(nn::Module& module, const DeviceMesh& mesh, FullyShardOptions options,
                 Tensor::Site site) {
  const ShardAxes axes = checked_axes(mesh);
  // First: what follows refuses on all ranks, or on none.
  ParameterWishes wishes;
  std::exception_ptr fault;
  std::string text;
  try {
    wishes = wishes_of(module, options);
    text = text_of(wishes);
  } catch (const std::exception& error) {  // of the user's functions, perhaps on this rank alone
    fault = std::current_exception();
    text = std::string("no placements: ") + error.what() + "\n";
  }
  try {
    check_same_model("fully_shard", module, mesh.group(), site, text);
  } catch (const Error&) {
    if (fault) std::rethrow_exception(fault);
    throw;
  }
  if (fault) std::rethrow_exception(fault);
  check_has_parameters(module);
  const auto left = cut_in_forward(module, wishes, mesh, options.mixed_precision);
  const Dims dims = cut_dims(module, wishes, left);
  check_free_of("fully_shard", module, mesh.group(), left);
  const std::vector<UnitPlan> plans = planned(module, options.units, left);
  if (!left.empty()) {
    const auto means = std::make_shared<MeanOfCut>(module, left, mesh.size());
    module.register_forward_pre_hook([means](nn::Module&, const Tensors&) {
      means->watch();
      return Tensors();
    });
  }
  const auto run = std::make_shared<ShardRun>(options.prefetch);
  const auto samples = part_of_samples(mesh);
  for (const UnitPlan& plan : plans) {
    if (plan.parameters.empty() && !plan.path.empty()) continue;
    const Reshard reshard = plan.path.empty() ? Reshard::after_backward : options.reshard;
    const auto unit = std::make_shared<ShardUnit>(
        plan.path, blocks_of(plan, axes, dims, options.mixed_precision, site), reshard);
    run->add(unit);
    tell_part(*plan.module, samples);
    hook(*plan.module, run, unit, options.mixed_precision);
  }
}

}  // namespace dtrun::dtensor
