// dtrun-ckpt: what is in checkpoints, whether they are whole, and copies of them in other forms;
// one process, no job, no GPU, a few MiB of memory.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/base/utf8.h"
#include "dtrun/dtensor/checkpoint/offline.h"
#include "dtrun/dtensor/layout/notation.h"
#include "dtrun/dtensor/layout/sharding_picture.h"
#include "dtrun/tensor/safetensors_header.h"
#include "options/exit_code.h"
#include "told_error.h"

namespace dtrun::tools {
namespace {

using base::Error;
using base::ErrorCode;
using dtensor::dcp::Archive;
using dtensor::dcp::SavedTensor;
namespace dcp = dtensor::dcp;
namespace json = boost::json;

/// What `verify` and `diff` end with where they have found something.
constexpr int kExitFound = 1;

struct Options {
  std::string path;
  std::string second;  ///< the target, or what is compared with
  std::vector<std::string> only;
  std::string draw;
  std::string tensor;
  std::vector<int> mesh = {};
  std::vector<std::string> layouts;
  std::uint64_t most_bytes = 5'000'000'000;
  int keep = 3;
  bool json = false;
  bool dry_run = false;
};

/// "1.5 GB".
std::string bytes_text(std::uint64_t bytes) {
  const char* const units[] = {"bytes", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  double number = static_cast<double>(bytes);
  while (number >= 1000 && unit < 4) number /= 1000, ++unit;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", number, units[unit]);
}

/// On a terminal, a line that is written anew.
class ProgressBar {
 public:
  ProgressBar() : is_shown_(::isatty(STDERR_FILENO) == 1) {}
  ~ProgressBar() {
    if (has_line_) fmt::print(stderr, "\r\x1b[K");
  }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void operator()(std::uint64_t done, std::uint64_t all) {
    const auto now = Clock::now();
    if (!is_shown_ || all == 0 || (now < next_ && done < all)) return;
    next_ = now + std::chrono::milliseconds(100);
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
    const auto filled = static_cast<std::size_t>(24 * done / all);
    const std::string bar = std::string(filled, '#') + std::string(24 - filled, '.');
    fmt::print(stderr, "\r\x1b[K[{}] {} of {}  {}/s", bar, bytes_text(done), bytes_text(all),
               bytes_text(static_cast<std::uint64_t>(rate)));
    if (rate > 0) fmt::print(stderr, "  {:.0f} s left", static_cast<double>(all - done) / rate);
    std::fflush(stderr);
    has_line_ = true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const bool is_shown_;
  bool has_line_ = false;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_;
};

/// An operation that reads a lot.
void with_progress(const Options& options,
                   const std::function<void(const dcp::OfflineOptions&)>& work) {
  ProgressBar bar;
  work({.only = options.only,
        .progress = [&bar](std::uint64_t done, std::uint64_t all) { bar(done, all); },
        .files = nullptr});
}

std::string layout_text(const SavedTensor& tensor) {
  if (tensor.mesh_shape.empty()) return tensor.chunks.size() == 1 ? "" : "in parts";
  std::string mesh;
  for (const int size : tensor.mesh_shape)
    mesh += (mesh.empty() ? "" : ", ") + std::to_string(size);
  return tensor.layout + " on (" + mesh + ")";
}

json::object json_of(const Archive& archive, const SavedTensor& tensor) {
  json::array chunks;
  for (const dcp::SavedChunk& chunk : tensor.chunks) {
    const auto& [offsets, shape] = chunk.box;
    chunks.push_back({{"file", archive.manifest().files[chunk.file].name},
                      {"offsets", json::array(offsets.begin(), offsets.end())},
                      {"shape", json::array(shape.begin(), shape.end())}});
  }
  json::object one{{"name", tensor.name},
                   {"dtype", tensors::safetensors_dtype_name(tensor.dtype)},
                   {"shape", json::array(tensor.shape.begin(), tensor.shape.end())},
                   {"bytes", tensor.bytes()},
                   {"chunks", std::move(chunks)}};
  if (!tensor.mesh_shape.empty()) {
    one["mesh"] = json::array(tensor.mesh_shape.begin(), tensor.mesh_shape.end());
    one["layout"] = tensor.layout;
  }
  return one;
}

bool is_wanted(const Options& options, const std::string& name) {
  return dcp::is_chosen(name, options.only);
}

int inspect_as_json(const Options& options, const Archive& archive) {
  json::array list;
  for (const SavedTensor& tensor : archive.manifest().tensors) {
    if (is_wanted(options, tensor.name)) list.push_back(json_of(archive, tensor));
  }
  json::object values;
  for (const auto& [name, value] : archive.manifest().values)
    values[name] = json::value(dcp::value_text(value));
  fmt::print("{}\n", json::serialize(json::object{{"kind", dcp::archive_kind_name(archive.kind())},
                                                  {"bytes", archive.bytes()},
                                                  {"ranks", archive.manifest().ranks},
                                                  {"files", archive.manifest().files.size()},
                                                  {"values", std::move(values)},
                                                  {"tensors", std::move(list)}}));
  return 0;
}

int draw(const Archive& archive, const std::string& name) {
  const SavedTensor& tensor = archive.tensor(name);
  if (tensor.mesh_shape.empty())
    throw Error(ErrorCode::kInvalidArgument, "\"" + name + "\" was saved from no mesh",
                "there are no ranks to draw");
  const bool in_color = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  fmt::print("{}", dtensor::sharding_text(
                       {tensor.shape, tensor.mesh_shape,
                        dtensor::parse_layout(tensor.layout, tensor.shape, tensor.mesh_shape)},
                       in_color ? dtensor::Colors::terminal : dtensor::Colors::none));
  return 0;
}

/// A name is whatever its writer has chosen: fit for a terminal, in one line.
std::string shown(const std::string& name) {
  std::string text = base::without_controls(name);
  std::ranges::replace(text, '\n', ' ');
  return text;
}

int inspect(const Options& options) {
  const Archive archive(options.path);
  if (!options.draw.empty()) return draw(archive, options.draw);
  if (options.json) return inspect_as_json(options, archive);
  const dcp::Manifest& manifest = archive.manifest();
  fmt::print("{}: a {}, {} tensors, {} in {} files", options.path,
             dcp::archive_kind_name(archive.kind()), manifest.tensors.size(),
             bytes_text(archive.bytes()), manifest.files.size());
  if (archive.kind() == dcp::ArchiveKind::checkpoint)
    fmt::print(", saved by {} ranks", manifest.ranks);
  fmt::print("\n");
  std::size_t longest = 0;
  for (const SavedTensor& tensor : manifest.tensors) {
    if (is_wanted(options, tensor.name)) longest = std::max(longest, shown(tensor.name).size());
  }
  for (const auto& [name, value] : manifest.values) {
    if (is_wanted(options, name)) fmt::print("  {} = {}\n", shown(name), dcp::value_text(value));
  }
  for (const SavedTensor& tensor : manifest.tensors) {
    if (!is_wanted(options, tensor.name)) continue;
    fmt::print("  {:{}}  {}{}  {}\n", shown(tensor.name), longest,
               tensors::dtype_short_name(tensor.dtype), tensors::shape_to_string(tensor.shape),
               shown(layout_text(tensor)));
  }
  return 0;
}

int verify(const Options& options) {
  dcp::VerifyReport report;
  try {
    with_progress(options,
                  [&](const dcp::OfflineOptions& how) { report = dcp::verify(options.path, how); });
  } catch (const Error& error) {
    // The file that was named is what is wrong with the arguments: it is damaged.
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    throw Error(ErrorCode::kProtocol, error.summary(), error.why(), error.remedy());
  }
  if (options.json) {
    json::array faults;
    for (const dcp::Fault& fault : report.faults)
      faults.push_back({{"tensor", fault.tensor}, {"fault", fault.text}});
    fmt::print("{}\n", json::serialize(json::object{{"bytes", report.bytes},
                                                    {"has_checksums", report.has_checksums},
                                                    {"faults", std::move(faults)}}));
  } else {
    for (const dcp::Fault& fault : report.faults) {
      fmt::print("{}{}\n", fault.tensor.empty() ? "" : "\"" + shown(fault.tensor) + "\": ",
                 shown(fault.text));
    }
    fmt::print("{}: {} read, {}\n", options.path, bytes_text(report.bytes),
               !report.faults.empty() ? fmt::format("{} faults", report.faults.size())
               : report.has_checksums ? "all as it was saved"
                                      : "all there; its form has no checksums");
  }
  return report.faults.empty() ? 0 : kExitFound;
}

enum class Target : std::uint8_t { archive, npy };

/// Makes a copy, and tells what lies at the target then.
int copy(const Options& options,
         const std::function<void(Archive& from, const dcp::OfflineOptions&)>& write,
         Target form = Target::archive) {
  const auto begin = std::chrono::steady_clock::now();
  Archive from(options.path);
  with_progress(options, [&](const dcp::OfflineOptions& how) { write(from, how); });
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;

  const std::string& target = options.second;
  std::string kind = ".npy file";
  std::size_t tensors = 1;
  std::uint64_t bytes = 0;
  if (form == Target::npy) {
    bytes = std::filesystem::file_size(target);
  } else {
    const Archive written(target);
    kind = dcp::archive_kind_name(written.kind());
    tensors = written.manifest().tensors.size();
    bytes = written.bytes();
  }
  if (options.json) {
    fmt::print("{}\n", json::serialize(json::object{{"target", target},
                                                    {"kind", kind},
                                                    {"tensors", tensors},
                                                    {"bytes", bytes},
                                                    {"seconds", time.count()}}));
  } else {
    fmt::print("{}: a {}, {} tensor{}, {}, written in {:.2f} s\n", target, kind, tensors,
               tensors == 1 ? "" : "s", bytes_text(bytes), time.count());
  }
  return 0;
}

int merge(const Options& options) {
  return copy(options, [&](Archive& from, const dcp::OfflineOptions& how) {
    dcp::merge(from, options.second, how);
  });
}

int split(const Options& options) {
  return copy(options, [&](Archive& from, const dcp::OfflineOptions& how) {
    dcp::split(from, options.second, options.most_bytes, how);
  });
}

int reshard(const Options& options) {
  std::vector<dcp::WantedLayout> layouts;
  for (const std::string& text : options.layouts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos)
      throw Error(ErrorCode::kUsage, "--layout " + text + " is not understood", "",
                  "PATTERN=LAYOUT: --layout '*.weight=[S(0), R]'");
    layouts.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return copy(options, [&](Archive& from, const dcp::OfflineOptions& how) {
    dcp::reshard(from, options.second, options.mesh, layouts, how);
  });
}

int convert_to_npy(const Options& options) {
  if (options.tensor.empty())
    throw Error(ErrorCode::kUsage, "a .npy file has one tensor", "", "--tensor NAME");
  return copy(
      options,
      [&](Archive& from, const dcp::OfflineOptions& how) {
        dcp::export_npy(from, options.tensor, options.second, how);
      },
      Target::npy);
}

/// By the target's ending.
int convert(const Options& options) {
  if (options.second.ends_with(".npy")) return convert_to_npy(options);
  if (options.second.ends_with(".safetensors")) return merge(options);
  return copy(options, [&](Archive& from, const dcp::OfflineOptions& how) {
    dcp::reshard(from, options.second, {1}, {}, how);
  });
}

int diff(const Options& options) {
  Archive a(options.path), b(options.second);
  std::vector<dcp::TensorDifference> found;
  with_progress(options, [&](const dcp::OfflineOptions& how) { found = dcp::diff(a, b, how); });
  if (options.json) {
    json::array list;
    for (const dcp::TensorDifference& one : found)
      list.push_back({{"name", one.name},
                      {"difference", one.text},
                      {"elements", one.elements},
                      {"largest", fmt::format("{}", one.largest)}});
    fmt::print("{}\n", json::serialize(json::object{{"differences", std::move(list)}}));
  } else {
    for (const dcp::TensorDifference& one : found)
      fmt::print("{}: {}\n", shown(one.name), shown(one.text));
    if (found.empty()) fmt::print("no difference\n");
  }
  return found.empty() ? 0 : kExitFound;
}

int prune(const Options& options) {
  dcp::SystemFileCalls files;
  const std::vector<std::string> gone = dcp::prunable(options.path, options.keep, files);
  json::array list;
  for (const std::string& path : gone) {
    if (!options.dry_run && !dcp::remove_checkpoint(path, files)) {
      if (!options.json) fmt::print("{} stays: it is in use, or is not a checkpoint alone\n", path);
      continue;
    }
    list.push_back(json::value(path));
    if (!options.json) fmt::print("{}{}\n", options.dry_run ? "would remove " : "removed ", path);
  }
  if (options.json) fmt::print("{}\n", json::serialize(json::object{{"removed", std::move(list)}}));
  return 0;
}

using Command = std::function<int(const Options&)>;

CLI::App* add_command(CLI::App& app, const char* name, const char* what, Options& options) {
  CLI::App* const command = app.add_subcommand(name, what);
  command->add_option("PATH", options.path, "a checkpoint, a folder of .safetensors files, or one")
      ->required();
  return command;
}

void add_target(CLI::App* command, const char* what, Options& options) {
  command->add_option("TARGET", options.second, what)->required();
}
void add_only(CLI::App* command, Options& options) {
  command->add_option("--only", options.only, "tensors of such names; * and ? stand for others")
      ->type_name("PATTERN,...")
      ->delimiter(',');
}
CLI::Option* add_json(CLI::App* command, Options& options) {
  return command->add_flag("--json", options.json, "an object instead of lines");
}

std::vector<std::pair<CLI::App*, Command>> add_commands(CLI::App& app, Options& options) {
  std::vector<std::pair<CLI::App*, Command>> commands;
  const auto add = [&](const char* name, const char* what, Command run) {
    commands.emplace_back(add_command(app, name, what, options), std::move(run));
    return commands.back().first;
  };
  CLI::App* command = add("inspect", "tensors, their layouts, and values", inspect);
  add_only(command, options);
  command->add_option("--draw", options.draw, "which rank had what of this tensor")
      ->type_name("NAME")
      ->excludes(add_json(command, options));
  command = add("verify", "reads every byte; ends with 1 where one is damaged", verify);
  add_only(command, options), add_json(command, options);
  command = add("merge", "whole tensors in one .safetensors file", merge);
  add_target(command, "the file", options), add_only(command, options), add_json(command, options);
  command = add("split", "HuggingFace's shards of whole tensors, and their index", split);
  add_target(command, "the folder", options), add_only(command, options),
      add_json(command, options);
  command->add_option("--max-bytes", options.most_bytes, "of a shard")
      ->type_name("BYTES")
      ->capture_default_str();
  command = add("reshard", "a checkpoint as the ranks of another mesh would save it", reshard);
  add_target(command, "the folder", options), add_only(command, options),
      add_json(command, options);
  command->add_option("--mesh", options.mesh, "the sizes of its axes: 2,2")
      ->type_name("N,...")
      ->delimiter(',')
      ->required();
  command
      ->add_option("--layout", options.layouts,
                   "how tensors of such names lie: '*.weight=[S(0), R]'; may be said again")
      ->type_name("PATTERN=LAYOUT")
      ->allow_extra_args(false);
  command = add("diff", "what differs; ends with 1 where something does", diff);
  add_target(command, "the other one", options), add_only(command, options);
  add_json(command, options);
  command =
      add("convert", "to what the target's name ends with: .npy, .safetensors, or a checkpoint",
          convert);
  add_target(command, "the file or folder", options), add_only(command, options),
      add_json(command, options);
  command->add_option("--tensor", options.tensor, "of a .npy file")->type_name("NAME");
  command = add("prune", "removes all but the last checkpoints of a series (FOLDER/step-N)", prune);
  command->add_option("--keep", options.keep, "that stay")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--dry-run", options.dry_run, "tells what would go");
  add_json(command, options);
  return commands;
}

/// CLI11's words lack the command that they are about.
[[noreturn]] void refuse(const CLI::ParseError& error, const CLI::App& app, int argc, char** argv) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  if (!commands.empty()) {
    const std::string command = commands.front()->get_name();
    throw Error(ErrorCode::kUsage, command + ": " + error.what(), "",
                "dtrun-ckpt " + command + " --help");
  }
  const bool is_named = argc > 1 && argv[1][0] != '-';
  throw Error(ErrorCode::kUsage,
              is_named ? fmt::format("there is no command '{}'", argv[1]) : error.what(), "",
              "dtrun-ckpt --help lists commands and options");
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "dtrun-ckpt looks at checkpoints, checks them, and copies them into other forms. One "
      "process, "
      "no job,\na few MiB of memory.");
  app.name("dtrun-ckpt");
  app.set_version_flag("--version", "dtrun-ckpt " DTRUN_VERSION);
  app.footer("Example: dtrun-ckpt merge runs/7/step-100 model.safetensors --only 'model.*'");
  app.require_subcommand(1);
  const std::vector<std::pair<CLI::App*, Command>> commands = add_commands(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    refuse(error, app, argc, argv);
  }
  for (const auto& [command, work] : commands) {
    if (command->parsed()) return work(options);
  }
  return launcher::kExitInternal;
}

int exit_code_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kProtocol:
      return kExitFound;
    case ErrorCode::kSystem:
      return launcher::kExitSystem;
    default:
      return launcher::kExitUsage;
  }
}

}  // namespace
}  // namespace dtrun::tools

int main(int argc, char** argv) {
  using namespace dtrun;
  try {
    return tools::run(argc, argv);
  } catch (const base::Error& error) {
    fmt::print(stderr, "dtrun-ckpt: error: {}\n", base::without_controls(tools::told(error)));
    return tools::exit_code_of(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "dtrun-ckpt: error: {}\n", error.what());
    return launcher::kExitInternal;
  }
}
