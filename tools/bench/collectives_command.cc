#include "bench/collectives_command.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <map>

#include "bench/copy_bound.h"
#include "bench/joined_backends.h"
#include "bench/plot.h"
#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/json.h"

namespace dtrun::bench {
namespace {

using base::Error;
using base::ErrorCode;
using collectives::ReduceOp;
using tensors::DType;

constexpr std::size_t kMostSizes = 1000;
constexpr std::size_t kMostBytes = std::size_t{1} << 40;

DType parse_type(const std::string& name) {
  static const std::map<std::string, DType> kOfNcclTests = {
      {"float", DType::f32}, {"double", DType::f64}, {"half", DType::f16}};
  const auto found = kOfNcclTests.find(name);
  if (found != kOfNcclTests.end()) return found->second;
  try {
    return tensors::parse_dtype(name);
  } catch (const Error&) {
    throw Error(ErrorCode::kUsage, fmt::format("--datatype={} is none that is measured", name), "",
                "one of f64, f32, f16, bf16, i64, i32, i16, i8, u8, bool");
  }
}

ReduceOp parse_reduction(const std::string& name) {
  if (name == "prod") return ReduceOp::product;  // nccl-tests' word
  try {
    return collectives::parse_reduce_op(name);
  } catch (const Error&) {
    throw Error(ErrorCode::kUsage, fmt::format("--op={} is none that is measured", name), "",
                "one of sum, prod, min, max, avg, band, bor, bxor, premul_sum");
  }
}

/// "8", "64K", "1M", "2GiB": powers of 1024.
std::size_t parse_size(const std::string& option, const std::string& text) {
  std::size_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  std::string unit(rest, end);
  for (char& letter : unit) letter = static_cast<char>(std::tolower(letter));
  static const std::map<std::string, int> kShifts = {
      {"", 0},    {"b", 0},    {"k", 10}, {"kb", 10}, {"kib", 10}, {"m", 20},
      {"mb", 20}, {"mib", 20}, {"g", 30}, {"gb", 30}, {"gib", 30}};
  const auto shift = kShifts.find(unit);
  if (error == std::errc{} && shift != kShifts.end() && number > 0 &&
      number <= kMostBytes >> shift->second)
    return number << shift->second;
  throw Error(ErrorCode::kUsage, fmt::format("{}={} is no size", option, text),
              "a size is a number of bytes from 1 to 1024G, with K, M or G for powers of 1024",
              "8, 64K, 16M");
}

std::vector<std::size_t> sizes_of(const CollectivesOptions& options) {
  if (options.least_bytes > options.most_bytes)
    throw Error(ErrorCode::kUsage,
                fmt::format("--minbytes={} is more than --maxbytes={}", options.least_bytes,
                            options.most_bytes),
                "", "name both");
  std::vector<std::size_t> sizes;
  std::size_t bytes = options.least_bytes;
  while (bytes <= options.most_bytes) {
    sizes.push_back(bytes);
    bytes = options.step > 0 ? bytes + options.step : bytes * options.factor;
    if (sizes.size() > kMostSizes)
      throw Error(ErrorCode::kUsage, fmt::format("--stepbytes={} is too little", options.step),
                  fmt::format("there would be more than {} sizes", kMostSizes),
                  "a longer step, or --stepfactor");
  }
  return sizes;
}

std::vector<Operation> operations_of(const CollectivesOptions& options) {
  std::vector<Operation> operations;
  for (const std::string& name : options.operations) operations.push_back(parse_operation(name));
  return operations.empty() ? all_operations() : operations;
}

/// The others' file systems may be others.
bool is_rank_0() {
  return base::get_env("RANK") == "0";
}

/// So that nobody measures for a minute and then has nowhere to write. @throws Error
void check_files(const CollectivesOptions& options) {
  int hyphens = 0;
  for (const std::string* file : {&options.json, &options.csv, &options.svg}) {
    hyphens += *file == "-" ? 1 : 0;
    const auto folder = std::filesystem::path(*file).parent_path();
    if (is_rank_0() && !folder.empty() && !std::filesystem::is_directory(folder))
      throw Error(ErrorCode::kUsage, fmt::format("{} cannot be written", *file),
                  fmt::format("there is no folder {}", folder.string()), "make it");
  }
  if (hyphens > 1)
    throw Error(ErrorCode::kUsage, "only one of --json, --csv and --svg can be '-'",
                "it takes the place of the table on standard output");
}

/// The backend cpu alone can do what the option asks for. @throws Error
void check_backends(const CollectivesOptions& options) {
  const auto is_named = [&](const char* name) {
    return std::ranges::find(options.backends, name) != options.backends.end();
  };
  if (options.machine_ranks > 0 && is_named("mpi"))
    throw Error(ErrorCode::kUsage, "--machine-ranks is not for a job that mpirun starts",
                "dtrun tells each rank its number before it joins the others, mpirun does not",
                "measure the backend mpi by itself");
  if (is_named("cpu")) return;
  const std::string names = fmt::format("{}", fmt::join(options.backends, ","));
  if (options.machine_ranks > 0)
    throw Error(ErrorCode::kUsage, fmt::format("--machine-ranks is not for the backend {}", names),
                "the backend cpu alone shares memory between ranks", "leave out one of the two");
  if (options.shared_memory)
    throw Error(ErrorCode::kUsage, fmt::format("--shared-memory is not for the backend {}", names),
                "the backend cpu alone has such memory", "leave out one of the two");
}

/// All that can be wrong whatever the job is. @throws Error
Call call_of(const CollectivesOptions& options) {
  const std::vector<Operation> operations = operations_of(options);
  sizes_of(options);
  check_files(options);
  check_backends(options);
  if (!options.svg.empty() && operations == std::vector{Operation::barrier})
    throw Error(ErrorCode::kUsage, "--svg has nothing to draw", "a barrier moves no bytes",
                "name another operation, too");
  const Call call{.dtype = parse_type(options.dtype),
                  .reduction = parse_reduction(options.reduction),
                  .root = options.root};
  if (std::ranges::any_of(operations, reduces) &&
      !collectives::reduce_op_supports(call.reduction, call.dtype))
    throw Error(ErrorCode::kUsage,
                fmt::format("--op={} has no meaning for {}", options.reduction,
                            tensors::dtype_short_name(call.dtype)),
                "avg is not for bool; band, bor and bxor are for integers and bool; premul_sum is "
                "for floating point",
                "another --op or --datatype, or operations that reduce nothing");
  return call;
}

/// What must fit the job. @throws Error
void check_ranks(const CollectivesOptions& options, int ranks) {
  if (options.root >= ranks)
    throw Error(ErrorCode::kUsage, fmt::format("--root={} is not among the ranks", options.root),
                fmt::format("they are 0 to {}", ranks - 1));
  if (!options.svg.empty() && ranks == 1)
    throw Error(ErrorCode::kUsage, "--svg has nothing to draw", "one rank moves nothing to another",
                "at least two ranks");
}

bool prints_table(const CollectivesOptions& options) {
  return options.json != "-" && options.csv != "-" && options.svg != "-";
}

void write(const std::string& file, const std::string& text) {
  if (file == "-")
    fmt::print("{}", text);
  else if (!file.empty())
    base::write_file_atomically(file, text);
}

/// Which rows there are: each size that an operation really has, once.
std::vector<Call> calls_of(const CollectivesOptions& options, Call call, int ranks) {
  std::vector<Call> calls;
  for (const std::size_t bytes : sizes_of(options)) {
    const Call next = call_of_size(call, bytes, ranks);
    if (calls.empty() || calls.back().count != next.count) calls.push_back(next);
  }
  return calls;
}

ReportRow measured_row(const Call& call, Contender& contender, const Sampling& sampling) {
  const int ranks = contender.size();
  ReportRow row{.call = call, .ranks = ranks, .measured = measure(contender, call, sampling)};
  row.bound = measured_copy_bound(contender, call);
  return row;
}

std::uint64_t wrong_elements(std::span<const Report> reports) {
  std::uint64_t sum = 0;
  for (const Report& report : reports) sum += report.wrong();
  return sum;
}

std::string names_of_all() {
  std::string names;
  for (const Operation operation : all_operations())
    names += (names.empty() ? "" : ", ") + std::string(operation_name(operation));
  return names;
}

}  // namespace

void add_options(CLI::App& app, CollectivesOptions& options) {
  app.add_option("OPERATION", options.operations, names_of_all() + "; none: all of them");
  app.add_option("--backend", options.backends,
                 "cpu, gloo, mpi, nccl, staged or one of the plugin's; of several in turns")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->default_str("cpu");
  app.add_option("--plugin", options.plugin, "a shared library that registers backends")
      ->type_name("FILE");
  app.add_option(
         "--machine-ranks", options.machine_ranks,
         "only each N ranks share memory, as if on a machine of their own; 1: all go by TCP")
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("N");
  app.add_flag("--shared-memory", options.shared_memory,
               "the tensors lie in memory that the ranks of a machine read in place");
  const auto bytes = [&app](const char* names_of_it, std::size_t& value, const char* text) {
    const std::string name = std::string(names_of_it).substr(3);
    return app
        .add_option_function<std::string>(
            names_of_it,
            [&value, name](const std::string& word) { value = parse_size(name, word); }, text)
        ->type_name("SIZE");
  };
  bytes("-b,--minbytes", options.least_bytes, "the first size: 8, 64K, 1M")->default_str("8");
  bytes("-e,--maxbytes", options.most_bytes, "the last size")->default_str("16M");
  CLI::Option* const factor =
      app.add_option("-f,--stepfactor", options.factor, "a size is so many times the one before")
          ->check(CLI::Range(2, 1 << 20).description(""))
          ->type_name("N")
          ->capture_default_str();
  bytes("-i,--stepbytes", options.step, "or so many bytes more")->excludes(factor);
  app.add_option("-o,--op", options.reduction,
                 "sum, prod, min, max, avg, band, bor, bxor or premul_sum")
      ->type_name("REDOP")
      ->capture_default_str();
  app.add_option("-d,--datatype", options.dtype,
                 "f64, f32, f16, bf16, i64, i32, i16, i8, u8 or bool")
      ->type_name("DTYPE")
      ->capture_default_str();
  app.add_option("-r,--root", options.root, "of reduce, broadcast, gather and scatter")
      ->check(CLI::NonNegativeNumber.description(""))
      ->type_name("RANK")
      ->capture_default_str();
  app.add_option("-n,--iters", options.samples, "samples of each size; a p99 needs 100")
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", options.warmup, "samples before them that do not count")
      ->check(CLI::NonNegativeNumber.description(""))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("-m,--agg_iters", options.calls,
                 "calls that a sample times together; 64 up to 4 KiB, else 1")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  app.add_option("-c,--check", options.check,
                 "1: every element of every result is checked; 0: none")
      ->check(CLI::Range(0, 1).description(""))
      ->type_name("0|1")
      ->capture_default_str();
  app.add_option("--json", options.json, "what was measured; -: to standard output, no table")
      ->type_name("FILE");
  app.add_option("--csv", options.csv, "the same, a line per row")->type_name("FILE");
  app.add_option("--svg", options.svg, "a plot of busbw over size, a line for each backend")
      ->type_name("FILE");
}

std::vector<Report> measure_collectives(const CollectivesOptions& options,
                                        std::span<Contender* const> contenders) {
  const int ranks = contenders.front()->size();
  Call call = call_of(options);
  check_ranks(options, ranks);
  const Sampling sampling{.samples = options.samples,
                          .warmup = options.warmup,
                          .calls = options.calls,
                          .check = options.check == 1 ? Check::results : Check::nothing};
  const bool is_first = contenders.front()->rank() == 0;
  const bool tells = is_first && prints_table(options);
  std::vector<Report> reports;
  for (std::size_t i = 0; i < contenders.size(); ++i)
    reports.push_back({.backend = options.backends[i],
                       .device = contenders[i]->device().to_string(),
                       .ranks = ranks,
                       .check = sampling.check,
                       .rows = {}});
  for (const Operation operation : operations_of(options)) {
    if (operation == Operation::send_recv && ranks == 1) {
      if (tells) fmt::print("# send_recv: left out, one rank has nobody to send to\n");
      continue;
    }
    call.operation = operation;
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      if (tells) fmt::print("{}", table_head(reports[i], call));
      for (const Call& next : calls_of(options, call, ranks)) {
        reports[i].rows.push_back(measured_row(next, *contenders[i], sampling));
        if (tells) fmt::print("{}", table_line(reports[i], reports[i].rows.back()));
        std::fflush(stdout);
      }
    }
  }
  if (!is_first) return reports;
  write(options.json, json_of(reports));
  write(options.csv, csv_of(reports));
  if (!options.svg.empty()) write(options.svg, svg_of(reports));
  if (tells && sampling.check == Check::results)
    fmt::print("# wrong elements: {}\n", wrong_elements(reports));
  return reports;
}

std::string machine_of_rank(int machine_ranks) {
  if (machine_ranks <= 0) return "";
  // 0 where there is none that is a number: init() says what is wrong.
  const std::string text = base::get_env("RANK").value_or("");
  int rank = 0;
  std::from_chars(text.data(), text.data() + text.size(), rank);
  return fmt::format("machine {}", rank / machine_ranks);
}

int exit_code_of(std::span<const Report> reports) {
  return wrong_elements(reports) == 0 ? 0 : 1;
}

int run_collectives(const CollectivesOptions& options) {
  call_of(options);  // before anybody waits for the others
  if (!options.plugin.empty()) load_plugin(options.plugin);
  const JoinedBackends joined(options.backends, machine_of_rank(options.machine_ranks));
  std::shared_ptr<tensors::HostAllocator> memory;
  std::optional<tensors::HostAllocatorScope> scope;
  if (options.shared_memory) scope.emplace(*(memory = joined.shared_memory()));
  return exit_code_of(measure_collectives(options, joined.contenders()));
}

}  // namespace dtrun::bench
