// dtrun-plan: what a redistribution would do, for any number of ranks, without any of them.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/layout/notation.h"
#include "dtrun/dtensor/layout/sharding_picture.h"
#include "dtrun/dtensor/plan/explanation.h"
#include "dtrun/dtensor/plan/link_file.h"
#include "options/exit_code.h"

namespace dtrun::tools {
namespace {

using base::Error;
using base::ErrorCode;

struct Options {
  std::vector<int> mesh;
  std::vector<std::string> names;
  std::vector<std::int64_t> shape;
  std::string dtype = "f32";
  std::string from;
  std::string to;
  int rank = 0;
  std::vector<std::string> link;
  std::string link_file;
  bool json = false;
  bool draw = false;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("--mesh", options.mesh, "the sizes of its axes: 2,2")
      ->delimiter(',')
      ->required()
      ->type_name("N,...");
  app.add_option("--names", options.names, "of the axes: dp,tp")
      ->delimiter(',')
      ->type_name("NAME,...");
  app.add_option("--shape", options.shape, "of the whole tensor: 1024,4096; none: a 0-dim one")
      ->delimiter(',')
      ->type_name("N,...");
  app.add_option("--dtype", options.dtype, "f64, f32, bf16, f16, i64, i32, i16, i8, u8 or bool")
      ->type_name("DTYPE")
      ->capture_default_str();
  app.add_option("--from", options.from,
                 "how it lies: an entry per axis, as PyTorch's placements ('[S(0), R]', "
                 "'Shard(0), Partial(max)'; ragged 'S(0: 3,0,5)'), or one per dim, as ColossalAI's "
                 "('[S01, R]' or '{0: [0, 1]}')")
      ->required()
      ->type_name("LAYOUT");
  app.add_option("--to", options.to, "how it is to lie")->required()->type_name("LAYOUT");
  app.add_option("--rank", options.rank,
                 "whose bytes are told; ranks go row by row through the mesh")
      ->type_name("RANK")
      ->capture_default_str();
  CLI::Option* const link =
      app.add_option("--link-rate", options.link,
                     "what an axis costs, or each of them: shm, device, or LATENCY:RATE in seconds "
                     "and bytes a second, 3e-6:4e9; shm where nothing is said")
          ->delimiter(',')
          ->type_name("LINK,...");
  app.add_option("--link-file", options.link_file,
                 "the same from a JSON file: {\"dp\": {\"latency\": 2e-5, \"bytes_per_second\": "
                 "1e9}, \"*\": ...}")
      ->excludes(link)
      ->type_name("FILE");
  CLI::Option* const json = app.add_flag("--json", options.json, "an object instead of a page");
  app.add_flag("--draw", options.draw, "who holds what before and after, too")->excludes(json);
}

std::vector<dtensor::LinkRate> links_of(const Options& options) {
  if (!options.link_file.empty())
    return dtensor::read_links(options.link_file, options.mesh.size(), options.names);
  std::vector<dtensor::LinkRate> links;
  for (const std::string& text : options.link) links.push_back(dtensor::parse_link(text));
  if (links.size() == 1) links.resize(options.mesh.size(), links[0]);
  if (!links.empty() && links.size() != options.mesh.size())
    throw Error(ErrorCode::kUsage, fmt::format("--link-rate has {} links", links.size()),
                fmt::format("the mesh has {} axes", options.mesh.size()), "one, or one per axis");
  return links;
}

void check_mesh(const Options& options) {
  std::int64_t ranks = 1;
  for (const int size : options.mesh) {
    if (size < 1 || (ranks *= size) > 1 << 24)
      throw Error(ErrorCode::kUsage, "--mesh has no such sizes",
                  "an axis has at least one rank, a mesh at most 16,777,216", "");
  }
  if (options.mesh.size() > dtensor::Layout::kMaxAxes)
    throw Error(ErrorCode::kUsage, fmt::format("--mesh has {} axes", options.mesh.size()),
                fmt::format("at most {}", dtensor::Layout::kMaxAxes), "");
  if (!options.names.empty() && options.names.size() != options.mesh.size())
    throw Error(ErrorCode::kUsage, fmt::format("--names has {} names", options.names.size()),
                fmt::format("the mesh has {} axes", options.mesh.size()), "one per axis");
  if (options.rank < 0 || options.rank >= ranks)
    throw Error(ErrorCode::kUsage, fmt::format("--rank={} is not in the mesh", options.rank),
                fmt::format("its ranks are 0 to {}", ranks - 1), "");
  for (const std::int64_t size : options.shape) {
    if (size < 0) throw Error(ErrorCode::kUsage, "--shape has a size below 0", "", "");
  }
}

dtensor::PlanQuestion question_of(const Options& options) {
  check_mesh(options);
  dtensor::PlanQuestion question;
  question.shape = options.shape;
  question.dtype = tensors::parse_dtype(options.dtype);
  question.mesh_shape = options.mesh;
  question.axis_names = options.names;
  question.from = dtensor::parse_layout(options.from, question.shape, question.mesh_shape);
  question.to = dtensor::parse_layout(options.to, question.shape, question.mesh_shape);
  question.links = links_of(options);
  question.coordinate.resize(options.mesh.size());
  int rank = options.rank;
  for (std::size_t axis = options.mesh.size(); axis-- > 0;) {
    question.coordinate[axis] = rank % options.mesh[axis];
    rank /= options.mesh[axis];
  }
  return question;
}

void draw(const dtensor::PlanQuestion& question) {
  const bool in_color = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  for (const dtensor::Layout& layout : {question.from, question.to}) {
    fmt::print("\n{}", dtensor::sharding_text(
                           {question.shape, question.mesh_shape, layout},
                           in_color ? dtensor::Colors::terminal : dtensor::Colors::none));
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "dtrun-plan tells what a redistribution of a distributed tensor would do: its steps, the "
      "bytes "
      "that\na rank sends, the predicted time, and the other ways. No rank is started.");
  app.name("dtrun-plan");
  app.set_version_flag("--version", "dtrun-plan " DTRUN_VERSION);
  app.footer(
      "Example: dtrun-plan --mesh 2,2 --names dp,tp --shape 1024,4096 --from '[S(0), R]' --to '[R, "
      "S(1)]'");
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::kUsage, error.what(), "", "dtrun-plan --help lists the options");
  }
  const dtensor::PlanExplanation explanation = dtensor::explain_plan(question_of(options));
  fmt::print("{}", options.json ? explanation.to_json() + "\n" : explanation.to_string());
  if (options.draw) draw(explanation.question);
  return 0;
}

}  // namespace
}  // namespace dtrun::tools

int main(int argc, char** argv) {
  using namespace dtrun;
  try {
    return tools::run(argc, argv);
  } catch (const base::Error& error) {
    fmt::print(stderr, "dtrun-plan: error: {}\n", error.what());
    const bool is_system = error.code() == base::ErrorCode::kSystem;
    return is_system ? launcher::kExitSystem : launcher::kExitUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "dtrun-plan: error: {}\n", error.what());
    return launcher::kExitInternal;
  }
}
