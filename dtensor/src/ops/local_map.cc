#include "dtrun/dtensor/ops/local_map.h"

#include <string>

#include "dtrun/base/error.h"
#include "mesh/spec_table.h"
#include "ops/gradient_layout.h"

namespace dtrun::dtensor {
namespace {

[[noreturn]] void refuse_mapping(const std::string& what, const std::string& why,
                                 const std::string& remedy) {
  throw base::Error(base::ErrorCode::kInvalidArgument, "local_map: " + what, why, remedy);
}

std::string counted(std::size_t count, const char* one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

void check_count(const char* option, std::size_t given, std::size_t arguments) {
  if (given == 0 || given == arguments) return;
  refuse_mapping(std::string(option) + " has " + counted(given, "item") +
                     ", and the function was called with " + counted(arguments, "argument"),
                 "each argument has one", "nullopt for what is no distributed tensor");
}

std::string nth(const char* what, std::size_t which) {
  return std::string(what) + " " + std::to_string(which);
}

/// A rank outside has no part that could tell how large the results are.
void check_has_rank(const DeviceMesh& mesh) {
  if (mesh.has_this_rank()) return;
  throw base::Error(base::ErrorCode::kUsage, "local_map on a rank outside of " + mesh.to_string(),
                    "what the function gives is only known where it has a part to work on",
                    "ask device_mesh().has_this_rank() first");
}

}  // namespace

LocalMapCall::LocalMapCall(const LocalMapOptions& options, std::size_t arguments,
                           const Tensor::Site& site)
    : options_(options), site_(site), mesh_(options.mesh) {
  if (mesh_.body() != nullptr) check_has_rank(mesh_);
  check_count("in_placements", options.in_placements.size(), arguments);
  check_count("in_grad_placements", options.in_grad_placements.size(), arguments);
}

void LocalMapCall::pass_other() {
  const std::size_t which = next_++;
  if (options_.in_placements.empty() || !options_.in_placements[which]) return;
  refuse_mapping(nth("argument", which) + " is no tensor, and has in_placements " +
                     placements_to_string(*options_.in_placements[which]),
                 "only tensors lie on a mesh", "nullopt for it");
}

Tensor LocalMapCall::local_of(const Tensor& argument) {
  const std::size_t which = next_++;
  if (!argument.defined() || !argument.is_distributed()) return argument;
  if (mesh_.body() == nullptr) mesh_ = argument.device_mesh();
  check_has_rank(mesh_);
  if (argument.device_mesh() != mesh_) {
    refuse_mapping(nth("argument", which) + " lies on " + argument.device_mesh().to_string(),
                   "the others, or the mesh that was given, are " + mesh_.to_string(),
                   "redistribute() it to that mesh");
  }
  Tensor placed = argument;
  if (!options_.in_placements.empty()) {
    const PlacementsOrNone& wanted = options_.in_placements[which];
    if (!wanted) {
      refuse_mapping(nth("argument", which) + " is " + argument.spec().to_string() +
                         ", and has no in_placements",
                     "the layout that the function wants is not known",
                     "its placements, in place of nullopt");
    }
    const Spec spec = make_spec(mesh_, *wanted, argument.shape(), argument.dtype());
    if (spec.placements() != argument.placements()) {
      if (!options_.redistribute_inputs) {
        refuse_mapping(nth("argument", which) + " is " + argument.spec().to_string(),
                       "in_placements wants " + placements_to_string(spec.placements()),
                       "redistribute() it before, or {.redistribute_inputs = true}");
      }
      placed = argument.redistribute(spec.placements(), {}, site_);
    }
  }
  if (options_.in_grad_placements.empty() || !options_.in_grad_placements[which])
    return placed.to_local();
  return local_with_gradient("local_map", placed, *options_.in_grad_placements[which]);
}

Tensor LocalMapCall::join(const Tensor& result, std::size_t which) const {
  const PlacementsOrNone& placements = options_.out_placements[which];
  if (!placements || mesh_.body() == nullptr || !result.defined()) return result;
  if (result.is_distributed()) {
    refuse_mapping(nth("result", which) + " is " + result.spec().to_string() + " already",
                   "the function gives what its rank has of it",
                   "nullopt in out_placements for it");
  }
  Tensor::FromLocal options;
  if (!options_.out_shapes.empty()) {
    options.shape = options_.out_shapes[which];
    options.has_shape = true;
  }
  return Tensor::from_local(result, mesh_, *placements, options, site_);
}

Tensor LocalMapCall::joined(const Tensor& result) const {
  return joined(Tensors{result})[0];
}

Tensors LocalMapCall::joined(const Tensors& results) const {
  const auto check = [&](const char* option, std::size_t given) {
    if (given == results.size()) return;
    refuse_mapping(std::string(option) + " has " + counted(given, "item") +
                       ", and the function gave " + counted(results.size(), "result"),
                   "each result has one", "nullopt for what stays local");
  };
  check("out_placements", options_.out_placements.size());
  if (!options_.out_shapes.empty()) check("out_shapes", options_.out_shapes.size());
  Tensors all;
  for (std::size_t i = 0; i < results.size(); ++i) all.push_back(join(results[i], i));
  return all;
}

}  // namespace dtrun::dtensor
