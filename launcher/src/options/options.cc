#include "options/options.h"

#include <fmt/core.h>

#include <climits>

#include "dtrun/base/error.h"
#include "options/option_values.h"
#include "options/python_options.h"
#include "options/rendezvous_options.h"

namespace dtrun::launcher {

using base::Error;
using base::ErrorCode;

namespace {

std::string read_local_ranks(const OptionValues& values) {
  const std::string text = values.text("nproc-per-node", "1");
  if (text == "cpu" || text == "gpu" || text == "auto") return text;
  // torchrun's too.
  if (text == "xpu")
    values.reject("nproc-per-node",
                  "cannot be counted: dtrun knows of NVIDIA's GPUs only; "
                  "it must be a number, cpu, gpu or auto");
  if (!base::parse_integer(text))
    values.reject("nproc-per-node", "must be a number, cpu, gpu or auto");
  return std::to_string(
      values.integer("nproc-per-node", 1, 1, rendezvous::rounds::kMostLocalRanks));
}

ContainmentWish read_containment(const OptionValues& values) {
  const std::string text = values.text("containment", "auto");
  if (text == "auto") return ContainmentWish::kAuto;
  if (text == "cgroup") return ContainmentWish::kCgroup;
  if (text == "namespace") return ContainmentWish::kNamespace;
  if (text != "guard") values.reject("containment", "must be auto, cgroup, namespace or guard");
  return ContainmentWish::kGuard;
}

BindingKind read_binding(const OptionValues& values) {
  const std::string text = values.text("numa-binding", "none");
  if (text == "none") return BindingKind::kNone;
  if (text == "node") return BindingKind::kNode;
  if (text == "socket") return BindingKind::kSocket;
  if (text == "exclusive") return BindingKind::kExclusive;
  if (text != "core-complex")
    values.reject("numa-binding", "must be node, socket, exclusive, core-complex or none");
  return BindingKind::kCoreComplex;
}

TimingForm read_timing(const OptionValues& values) {
  if (!values.has("timing")) return TimingForm::kNone;
  const std::string form = values.text("timing", "");
  if (form != "1" && form != "text" && form != "json")
    values.reject("timing", "must be text or json, or left out");
  return form == "json" ? TimingForm::kJson : TimingForm::kText;
}

std::optional<OmpThreads> read_omp_threads(const OptionValues& values) {
  if (!values.has("omp-threads")) return std::nullopt;
  if (values.text("omp-threads", "") == "share") return OmpThreads{};
  return OmpThreads{static_cast<int>(values.integer("omp-threads", 1, 1, 65536))};
}

DryRun read_dry_run(const OptionValues& values) {
  const std::string text = values.text("dry-run", "");
  if (text.empty() && !values.has("dry-run")) return DryRun::kNo;
  if (text == "json") return DryRun::kJson;
  if (text != "1") values.reject("dry-run", "must be json, or left out");
  return DryRun::kTable;
}

void check_combinations(const OptionValues& values, const Options& options) {
  if (options.module && options.no_python)
    throw Error(ErrorCode::kUsage, "--module and --no_python exclude each other", "",
                "leave one of them out");
  if (values.has("pass-local-rank") && values.has("use-env"))
    throw Error(ErrorCode::kUsage, "--pass_local_rank and --use_env exclude each other", "",
                "leave one of them out");
  if (options.program.empty())
    throw Error(ErrorCode::kUsage, "no program was named", "",
                "dtrun [options] PROGRAM [ARGUMENTS...]; dtrun --help lists the options");
}

void read_findings(const EngineFindings& findings, Options& options) {
  options.shared_signal_wait = findings.shared_signal_wait;
  options.adopted = findings.adopted;
  if (!findings.engine) return;
  const Engine& engine = *findings.engine;
  options.engine_note = findings.note;
  // What was decided is said once per job.
  if (findings.decided && engine.task == 0)
    options.warnings.push_back(fmt::format("dtrun: {}", findings.note));
  if (engine.key == "slurm" && engine.nodes.value_or(1) >= options.rounds.max_nodes)
    options.step_nodes = engine.node_list;
}

}  // namespace

void Options::tell_without_effect(const GivenValue& given, const std::string& why) {
  auto& texts = given.kind == Origin::kCommandLine ? warnings : notes;
  texts.push_back(fmt::format("dtrun: {} is without effect: {}", given.origin, why));
}

Options read_options(const std::string& name, CommandLine line,
                     const base::Environment& environment) {
  Options options;
  options.program = std::move(line.program);
  options.users_file = std::move(line.users_file);
  const EngineFindings findings = std::move(line.engine);
  if (line.values.contains("standalone")) drop_meeting_options(line, options);
  const OptionValues values(std::move(line));
  options.local_ranks = read_local_ranks(values);
  read_rendezvous_options(values, options);
  read_findings(findings, options);
  options.role = values.text("role", options.role);
  options.binding = read_binding(values);
  options.omp_threads = read_omp_threads(values);
  options.stop = read_stop_options(values, environment);
  read_python_options(values, options);
  options.containment = read_containment(values);
  options.module = values.has("module");
  options.no_python = values.has("no-python");
  options.virtual_local_rank = values.has("virtual-local-rank");
  options.called_as = launcher::called_as(name);
  options.ends_as_torchrun = is_torchs_name(options.called_as) && !values.has("exit");
  options.output = read_output_options(values, environment, options.called_as);
  options.pass_local_rank =
      values.has("pass-local-rank") ||
      (options.called_as == CalledAs::kTorchDistributedLaunch && !values.has("use-env"));
  options.verbose = values.has("verbose");
  options.one_of_hosts = values.has("one-of-hosts");
  options.dry_run = read_dry_run(values);
  options.report_bindings = values.has("report-bindings");
  options.timing = read_timing(values);
  check_rendezvous_options(values, options);
  check_engine_endpoint(findings.engine, options);
  check_combinations(values, options);
  return options;
}

}  // namespace dtrun::launcher
