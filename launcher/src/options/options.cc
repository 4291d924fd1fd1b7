#include "options/options.h"

#include <fmt/core.h>

#include <climits>

#include "dtrun/base/error.h"
#include "options/option_binding.h"
#include "options/python_options.h"
#include "options/rendezvous_conf.h"
#include "options/rendezvous_options.h"

namespace dtrun::launcher {

using base::Error;
using base::ErrorCode;

namespace {

// "9400" or "ADDRESS:9400".
base::HostPort parse_metrics_place(const std::string& text) {
  const auto colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  base::HostPort place{"127.0.0.1", {}};
  if (colon != std::string::npos) place = base::HostPort::parse(text.substr(0, colon));
  if (place.port) throw demand("must be a port, or an address and a port");
  place.port = static_cast<std::uint16_t>(parse_integer_within(port, 0, 65535));
  return place;
}

void bind_own_options(OptionBinding& binding, Options& options) {
  binding.parsed("nproc-per-node", options.programs.front().local_ranks, parse_rank_count);
  binding.text("role", options.role);
  binding.flag("module", options.module);
  binding.flag("no-python", options.no_python);
  binding.flag("virtual-local-rank", options.virtual_local_rank);
  binding.flag("pass-local-rank", options.pass_local_rank);
  binding.choice("containment", options.containment,
                 {{"auto", ContainmentWish::kAuto},
                  {"cgroup", ContainmentWish::kCgroup},
                  {"namespace", ContainmentWish::kNamespace},
                  {"guard", ContainmentWish::kGuard}});
  binding.choice("numa-binding", options.binding,
                 {{"none", BindingKind::kNone},
                  {"node", BindingKind::kNode},
                  {"socket", BindingKind::kSocket},
                  {"exclusive", BindingKind::kExclusive},
                  {"core-complex", BindingKind::kCoreComplex}});
  binding.parsed("omp-threads", options.omp_threads, [](const std::string& text) {
    return text == "share" ? OmpThreads{} : OmpThreads{parse_integer_within(text, 1, 65536)};
  });
  binding.parsed("debug-rank", [&options](const std::string& text) {
    options.debug_rank = parse_integer_within(text, 0, INT_MAX);
  });
  binding.flag("report-bindings", options.report_bindings);
  binding.flag("verbose", options.verbose);
  binding.text("events", options.events_file);
  binding.parsed("metrics-port", options.metrics, parse_metrics_place);
  binding.text("on-restart", options.on_restart);
  binding.text("health-check", options.health_check);
  binding.parsed("restart-command-timeout", options.restart_command_timeout, parse_seconds);
  binding.flag("one-of-hosts", options.one_of_hosts);
  binding.choice("dry-run", options.dry_run, {{"1", DryRun::kTable}, {"json", DryRun::kJson}});
  binding.choice(
      "timing", options.timing,
      {{"1", TimingForm::kText}, {"text", TimingForm::kText}, {"json", TimingForm::kJson}});
}

void check_combinations(const CommandLine& line, const Options& options) {
  if (options.module && options.no_python)
    throw Error(ErrorCode::kUsage, "--module and --no_python exclude each other", "",
                "leave one of them out");
  if (line.has("pass-local-rank") && line.has("use-env"))
    throw Error(ErrorCode::kUsage, "--pass_local_rank and --use_env exclude each other", "",
                "leave one of them out");
  if (line.has("adopt") && options.programs.size() > 1)
    throw Error(ErrorCode::kUsage,
                fmt::format("{} starts one rank, and {} programs are named",
                            line.get("adopt").origin, options.programs.size()),
                "", "name the programs to what starts the ranks, such as mpirun");
}

void read_findings(const EngineFindings& findings, Options& options) {
  options.shared_signal_wait = findings.shared_signal_wait;
  options.adopted = findings.adopted;
  if (!findings.engine) return;
  const Engine& engine = *findings.engine;
  options.engine_note = findings.note;
  // Node 0 alone reports it, so that it appears once per job.
  if (!findings.decided.empty() && engine.task == 0)
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
  options.users_file = std::move(line.users_file);
  options.called_as = launcher::called_as(name);
  if (line.has("standalone")) drop_meeting_options(line, options);
  const RendezvousConf conf = read_rendezvous_conf(line);
  OptionBinding binding(line);
  bind_own_options(binding, options);
  bind_rendezvous_options(binding, conf, options);
  bind_stop_options(binding, options.stop);
  bind_output_options(binding, options.output);
  bind_python_options(binding, options);
  complete_rendezvous_options(line, conf, options);
  read_findings(line.engine, options);
  complete_stop_options(line, environment, options.stop);
  tell_python_options(line, options);
  complete_output_options(line, environment, options.called_as, options.output);
  options.ends_as_torchrun = is_torchs_name(options.called_as) && !line.has("exit");
  if (options.called_as == CalledAs::kTorchDistributedLaunch && !line.has("use-env"))
    options.pass_local_rank = true;
  read_programs(options.called_as, line, environment, options.programs);
  check_engine_endpoint(line.engine.engine, options);
  check_combinations(line, options);
  return options;
}

}  // namespace dtrun::launcher
