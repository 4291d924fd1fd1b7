// dtrun-plan: what a redistribution would do, also to another mesh, or an operator, for any number
// of ranks, without any of them.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/layout/notation.h"
#include "dtrun/dtensor/layout/sharding_picture.h"
#include "dtrun/dtensor/plan/crossing_explanation.h"
#include "dtrun/dtensor/plan/explanation.h"
#include "dtrun/dtensor/plan/link_file.h"
#include "options/exit_code.h"
#include "plan/planned_call.h"
#include "told_error.h"

namespace dtrun::tools {
namespace {

using base::Error;
using base::ErrorCode;

/// What is said of one of the meshes, with options that begin with `prefix`.
struct MeshOptions {
  std::string prefix;
  std::vector<int> sizes = {};
  std::vector<std::string> names = {};
  std::vector<std::string> link = {};
  std::string link_file = {};

  std::string option(const std::string& name) const { return prefix + name; }
  /// At most 2^24, as checked.
  int ranks() const { return std::accumulate(sizes.begin(), sizes.end(), 1, std::multiplies<>()); }
};

struct Options {
  MeshOptions mesh{"--"};
  MeshOptions to_mesh{"--to-"};  ///< without sizes: there is one mesh
  std::optional<int> to_first_rank;
  std::vector<std::int64_t> shape;
  std::string dtype = "f32";
  std::string from;
  std::string to;
  std::string op;
  std::vector<std::string> operands;
  std::optional<int> dim;
  std::optional<std::int64_t> count;
  bool backward = false;
  int rank = 0;
  bool json = false;
  bool draw = false;
};

void add_link_options(CLI::App& app, MeshOptions& mesh) {
  CLI::Option* const link =
      app.add_option(mesh.option("link-rate"), mesh.link,
                     "what an axis costs, or each of them: shm, device, or LATENCY:RATE in seconds "
                     "and bytes a second, 3e-6:4e9; shm where nothing is said")
          ->delimiter(',')
          ->type_name("LINK,...");
  app.add_option(mesh.option("link-file"), mesh.link_file,
                 "the same from a JSON file: {\"dp\": {\"latency\": 2e-5, \"bytes_per_second\": "
                 "1e9}, \"*\": ...}")
      ->excludes(link)
      ->type_name("FILE");
}

void add_options_of_other_mesh(CLI::App& app, Options& options) {
  CLI::Option* const mesh = app.add_option("--to-mesh", options.to_mesh.sizes,
                                           "the tensor moves to another mesh, of these sizes")
                                ->delimiter(',')
                                ->type_name("N,...");
  app.add_option("--to-names", options.to_mesh.names, "of that mesh's axes")
      ->delimiter(',')
      ->type_name("NAME,...");
  app.add_option("--to-first-rank", options.to_first_rank,
                 "that mesh has this rank and those that follow; 0: as the first one. Where it is "
                 "not said, the ranks behind the first mesh's")
      ->type_name("RANK");
  add_link_options(app, options.to_mesh);
  for (const char* const name :
       {"--to-names", "--to-first-rank", "--to-link-rate", "--to-link-file"})
    app.get_option(name)->needs(mesh);
}

void add_options_of_operator(CLI::App& app, Options& options) {
  CLI::Option* const op =
      app.add_option("--op", options.op, "an operator in place of a move: " + planned_operators())
          ->type_name("NAME");
  app.add_option("--operand", options.operands,
                 "each of its operands, as dtype, shape and layout: 'f32[1024, 4096] [S(0), R]'; "
                 "without a dtype that of --dtype, and i64 for positions")
      ->type_name("TENSOR")
      ->delimiter('\0')
      ->allow_extra_args(false)
      ->needs(op);
  app.add_option("--dim", options.dim,
                 "along which it goes; of transpose the one that changes "
                 "places with the last")
      ->type_name("DIM")
      ->needs(op);
  app.add_option("--count", options.count,
                 "how many elements topk takes, roll shifts by, or a part of split has")
      ->type_name("N")
      ->needs(op);
  app.add_flag("--backward", options.backward, "the way back of its gradient, too")->needs(op);
  for (const char* const name : {"--shape", "--from", "--to", "--to-mesh", "--draw"})
    op->excludes(app.get_option(name));
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("--mesh", options.mesh.sizes, "the sizes of its axes: 2,2")
      ->delimiter(',')
      ->required()
      ->type_name("N,...");
  app.add_option("--names", options.mesh.names, "of the axes: dp,tp")
      ->delimiter(',')
      ->type_name("NAME,...");
  app.add_option("--shape", options.shape, "of the whole tensor: 1024,4096; none: a 0-dim one")
      ->delimiter(',')
      ->type_name("N,...");
  app.add_option("--dtype", options.dtype, "f64, f32, bf16, f16, i64, i32, i16, i8, u8 or bool")
      ->type_name("DTYPE")
      ->capture_default_str();
  app.add_option(
         "--from", options.from,
         "how it lies: an entry per axis, as PyTorch's placements ('[S(0), R]', "
         "'Shard(0), Partial(max)', 'S(0)[1]S(0)[0]'; ragged 'S(0: 3,0,5)'), or one per dim, as "
         "ColossalAI's ('[S01, R]' or '{0: [0, 1]}')")
      ->type_name("LAYOUT");
  app.add_option("--to", options.to, "how it is to lie")->type_name("LAYOUT");
  app.add_option("--rank", options.rank,
                 "whose bytes are told; ranks go row by row through the mesh")
      ->type_name("RANK")
      ->capture_default_str();
  add_link_options(app, options.mesh);
  add_options_of_other_mesh(app, options);
  CLI::Option* const json = app.add_flag("--json", options.json, "an object instead of a page");
  app.add_flag("--draw", options.draw, "who holds what before and after, too")->excludes(json);
  add_options_of_operator(app, options);
}

std::vector<dtensor::LinkRate> links_of(const MeshOptions& mesh) {
  if (!mesh.link_file.empty())
    return dtensor::read_links(mesh.link_file, mesh.sizes.size(), mesh.names);
  std::vector<dtensor::LinkRate> links;
  for (const std::string& text : mesh.link) links.push_back(dtensor::parse_link(text));
  if (links.size() == 1) links.resize(mesh.sizes.size(), links[0]);
  if (!links.empty() && links.size() != mesh.sizes.size())
    throw Error(ErrorCode::kUsage,
                fmt::format("{} has {} links", mesh.option("link-rate"), links.size()),
                fmt::format("the mesh has {} axes", mesh.sizes.size()), "one, or one per axis");
  return links;
}

void check_mesh(const MeshOptions& mesh) {
  std::int64_t ranks = 1;
  for (const int size : mesh.sizes) {
    if (size < 1 || (ranks *= size) > 1 << 24)
      throw Error(ErrorCode::kUsage, mesh.option("mesh") + " has no such sizes",
                  "an axis has at least one rank, a mesh at most 16,777,216", "");
  }
  if (mesh.sizes.size() > dtensor::Layout::kMaxAxes)
    throw Error(ErrorCode::kUsage,
                fmt::format("{} has {} axes", mesh.option("mesh"), mesh.sizes.size()),
                fmt::format("at most {}", dtensor::Layout::kMaxAxes), "");
  if (!mesh.names.empty() && mesh.names.size() != mesh.sizes.size())
    throw Error(ErrorCode::kUsage,
                fmt::format("{} has {} names", mesh.option("names"), mesh.names.size()),
                fmt::format("the mesh has {} axes", mesh.sizes.size()), "one per axis");
}

void check_shape(const Options& options) {
  for (const std::int64_t size : options.shape) {
    if (size < 0) throw Error(ErrorCode::kUsage, "--shape has a size below 0", "", "");
  }
}

dtensor::PlanQuestion question_of(const Options& options) {
  const MeshOptions& mesh = options.mesh;
  check_mesh(mesh);
  check_shape(options);
  if (options.rank < 0 || options.rank >= mesh.ranks())
    throw Error(ErrorCode::kUsage, fmt::format("--rank={} is not in the mesh", options.rank),
                fmt::format("its ranks are 0 to {}", mesh.ranks() - 1), "");
  dtensor::PlanQuestion question;
  question.shape = options.shape;
  question.dtype = tensors::parse_dtype(options.dtype);
  question.mesh_shape = mesh.sizes;
  question.axis_names = mesh.names;
  question.from = dtensor::parse_layout(options.from, question.shape, question.mesh_shape);
  question.to = dtensor::parse_layout(options.to, question.shape, question.mesh_shape);
  question.links = links_of(mesh);
  question.coordinate.resize(mesh.sizes.size());
  int rank = options.rank;
  for (std::size_t axis = mesh.sizes.size(); axis-- > 0;) {
    question.coordinate[axis] = rank % mesh.sizes[axis];
    rank /= mesh.sizes[axis];
  }
  return question;
}

dtensor::CrossingSide side_of(const MeshOptions& mesh, int first_rank, const std::string& layout,
                              const tensors::Shape& shape) {
  check_mesh(mesh);
  // To find whom a rank sends to takes a look at all of them, for some ranks of each mesh.
  if (mesh.ranks() > 1 << 16)
    throw Error(ErrorCode::kUsage, mesh.option("mesh") + " has too many ranks",
                "between two meshes, each has at most 65,536", "");
  return {.mesh_shape = mesh.sizes,
          .axis_names = mesh.names,
          .first_rank = first_rank,
          .layout = dtensor::parse_layout(layout, shape, mesh.sizes),
          .links = links_of(mesh)};
}

dtensor::CrossingQuestion crossing_of(const Options& options) {
  check_shape(options);
  dtensor::CrossingQuestion question;
  question.shape = options.shape;
  question.dtype = tensors::parse_dtype(options.dtype);
  question.from = side_of(options.mesh, 0, options.from, question.shape);
  const int first = options.to_first_rank.value_or(options.mesh.ranks());
  if (first < 0 || first > 1 << 24)
    throw Error(ErrorCode::kUsage, fmt::format("--to-first-rank={} is no rank", first),
                "ranks are 0 to 16,777,216", "");
  question.to = side_of(options.to_mesh, first, options.to, question.shape);
  question.rank = options.rank;
  return question;
}

void draw(const dtensor::ShardingSubject& subject) {
  const bool in_color = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  fmt::print("\n{}", dtensor::sharding_text(
                         subject, in_color ? dtensor::Colors::terminal : dtensor::Colors::none));
}

void tell_redistribution(const Options& options) {
  const dtensor::PlanExplanation explanation = dtensor::explain_plan(question_of(options));
  fmt::print("{}", options.json ? explanation.to_json() + "\n" : explanation.to_string());
  const dtensor::PlanQuestion& question = explanation.question;
  for (const dtensor::Layout& layout : {question.from, question.to})
    if (options.draw) draw({question.shape, question.mesh_shape, layout});
}

void tell_crossing(const Options& options) {
  const dtensor::CrossingExplanation explanation = dtensor::explain_crossing(crossing_of(options));
  fmt::print("{}", options.json ? explanation.to_json() + "\n" : explanation.to_string());
  const dtensor::CrossingQuestion& question = explanation.question;
  for (const dtensor::CrossingSide& side : {question.from, question.to}) {
    if (!options.draw) break;
    if (side.first_rank != 0) fmt::print("\nHere 0 is rank {}, and so on:\n", side.first_rank);
    draw({question.shape, side.mesh_shape, side.layout});
  }
}

void tell_operator(const Options& options) {
  check_mesh(options.mesh);
  const dtensor::CallsExplanation explanation = explain_call({.mesh_shape = options.mesh.sizes,
                                                              .axis_names = options.mesh.names,
                                                              .links = links_of(options.mesh),
                                                              .rank = options.rank,
                                                              .op = options.op,
                                                              .operands = options.operands,
                                                              .dtype = options.dtype,
                                                              .dim = options.dim,
                                                              .count = options.count,
                                                              .is_both_ways = options.backward});
  fmt::print("{}", options.json ? explanation.to_json() + "\n" : explanation.to_string());
}

void tell(const Options& options) {
  if (!options.op.empty()) return tell_operator(options);
  if (options.from.empty() || options.to.empty())
    throw Error(ErrorCode::kUsage, "nothing is to be planned", "",
                "--from and --to say how a tensor lies and is to lie, --op names an operator");
  options.to_mesh.sizes.empty() ? tell_redistribution(options) : tell_crossing(options);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "dtrun-plan tells what a redistribution of a distributed tensor or an operator would do: its "
      "steps,\nthe bytes that a rank sends, the predicted time, and the other ways. No rank is "
      "started.");
  app.name("dtrun-plan");
  app.set_version_flag("--version", "dtrun-plan " DTRUN_VERSION);
  app.footer(
      "Examples: dtrun-plan --mesh 2,2 --names dp,tp --shape 1024,4096 --from '[S(0), R]' --to "
      "'[R, S(1)]'\n"
      "          dtrun-plan --mesh 4 --shape 1024,4096 --from '[S(0)]' --to-mesh 2,2 --to '[S(0), "
      "S(1)]' --rank 5\n"
      "          dtrun-plan --mesh 2,2 --op matmul --operand '[1024, 4096] [S(0), R]' --operand "
      "'[4096, 512] [R, S(0)]'");
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::kUsage, error.what(), "", "dtrun-plan --help lists the options");
  }
  tell(options);
  return 0;
}

}  // namespace
}  // namespace dtrun::tools

int main(int argc, char** argv) {
  using namespace dtrun;
  try {
    return tools::run(argc, argv);
  } catch (const base::Error& error) {
    fmt::print(stderr, "dtrun-plan: error: {}\n", tools::told(error));
    const bool is_system = error.code() == base::ErrorCode::kSystem;
    return is_system ? launcher::kExitSystem : launcher::kExitUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "dtrun-plan: error: {}\n", error.what());
    return launcher::kExitInternal;
  }
}
