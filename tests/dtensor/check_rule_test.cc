// Every rule of every operator is true, a wrong one is found, and docs/operators.md says what is.
#include "dtrun/dtensor/ops/check_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>

#include "autograd/call.h"
#include "dtensor/operator_devices.h"
#include "dtensor/operator_samples.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/tensor/cuda.h"
#include "support/rank_threads.h"
#include "tensor/all_dtypes.h"
#include "tensor/simulated_devices.h"

namespace dtrun::dtensor {
namespace {

TEST(CheckRuleTest, EveryRuleOfEveryOperatorIsTrue) {
  std::mutex mutex;
  std::size_t checked = 0;
  for (const int ranks : {2, 3}) {
    // Even and uneven parts, and ranks that have nothing.
    for (const auto& [rows, columns] : {std::pair{6, 4}, {5, 3}, {2, 2}}) {
      const std::vector<OperatorSample> samples = operator_samples(rows, columns);
      test::run_ranks(ranks, [&](const ProcessGroup& group) {
        const DeviceMesh mesh(group, {ranks});
        for (const OperatorSample& sample : samples) {
          for (const CheckedRule& rule : check_rule(sample.run, sample.inputs, mesh)) {
            const std::lock_guard lock(mutex);
            ++checked;
            EXPECT_EQ(rule.wrong, "")
                << sample.name << ", " << rule.op << ": " << rule.rule << " on rank "
                << group.rank() << " of " << ranks << ", " << rows << " x " << columns;
          }
        }
      });
    }
  }
  std::printf("%zu rules\n", checked);
  EXPECT_GT(checked, 1000U);
}

/// Claims to be linear.
constexpr Op<> kClaimedLinear{
    .name = "claimed",
    .meta = [](Metas in, const None&) { return in[0]; },
    .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all().linear(0); },
    .local = [](Locals in, const None&, const None&, const Site&) { return tensors::relu(in[0]); }};

TEST(CheckRuleTest, AWrongRuleIsNamed) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const auto checked = check_rule([](const Tensors& in) { return call(kClaimedLinear, in[0]); },
                                    {tensor({1.5, -2.0})}, mesh);
    std::string wrong;
    for (const CheckedRule& rule : checked) {
      if (!rule.wrong.empty()) wrong += rule.op + ": " + rule.rule + ": " + rule.wrong + "\n";
    }
    EXPECT_EQ(wrong,
              "claimed: P(sum) -> P(sum): element 0 is 4.500000, not 1.500000\n"
              "claimed: P(avg) -> P(avg): element 0 is 2.250000, not 1.500000\n");
  });
}

TEST(CheckRuleTest, AMeshOfTwoAxesIsRefused) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    expect_refused(
        [&] { check_rule([](const Tensors& in) { return neg(in[0]); }, {ones(2)}, mesh); },
        "a rule is of one axis");
  });
}

// --- docs/operators.md

/// Which of them the sample's floating-point inputs may be.
std::string dtypes_of(const OperatorSample& sample) {
  std::set<DType> taken;
  for (const DType dtype : tensors::kAllDTypes) {
    Tensors inputs;
    for (const Tensor& input : sample.inputs) {
      inputs.push_back(input.dtype() == DType::f64 ? input.to(dtype) : input);
    }
    try {
      sample.run(inputs);
      taken.insert(dtype);
    } catch (const base::Error&) {
    }
  }
  const std::set<DType> floating = {DType::f64, DType::f32, DType::f16, DType::bf16};
  if (taken.size() == std::size(tensors::kAllDTypes)) return "all";
  if (taken == floating) return "floating";
  if (!taken.contains(DType::boolean) && taken.size() == std::size(tensors::kAllDTypes) - 1)
    return "numbers";
  std::string names;
  for (const DType dtype : taken) {
    names += (names.empty() ? "" : " ") + std::string(tensors::dtype_short_name(dtype));
  }
  return names;
}

bool has_gradient(const OperatorSample& sample) {
  Tensors inputs;
  for (const Tensor& input : sample.inputs) {
    inputs.push_back(input.dtype() == DType::f64 ? input.detach().requires_grad_() : input);
  }
  return sample.run(inputs).requires_grad();
}

/// Its own rules; what is made of several operators names them.
std::string rules_of(const std::vector<CheckedRule>& checked) {
  std::vector<std::string> ops;
  std::set<std::string> seen;
  std::string rules;
  for (const CheckedRule& rule : checked) {
    if (ops.empty() || ops.back() != rule.op) ops.push_back(rule.op);
    const bool all_whole = rule.rule.find_first_of("SP") == std::string::npos;
    if (!all_whole && seen.insert(rule.rule).second)
      rules += (rules.empty() ? "" : "; ") + rule.rule;
  }
  if (ops.empty()) return "cut as the operand, whole where it is Partial";
  if (ops.size() <= 1) return rules;
  std::string names;
  std::set<std::string> named;
  for (const std::string& op : ops) {
    if (named.insert(op).second) names += (names.empty() ? "" : ", ") + op;
  }
  return "made of " + names;
}

std::vector<std::string> devices_of_all(const std::vector<OperatorSample>& samples) {
  std::vector<std::string> devices(samples.size());
  if (!tensors::cuda::is_built()) return devices;
  const tensors::cuda::SimulatedDevices simulated;
  std::ranges::transform(samples, devices.begin(), devices_of);
  return devices;
}

/// A build without CUDA does not know what a device can do.
std::string without_devices(const std::string& page) {
  const std::regex row("(\\|[^|\n]*\\|[^|\n]*\\|[^|\n]*\\|)[^|\n]*(\\|[^|\n]*\\|\n)");
  return std::regex_replace(page, row, "$1$2");
}

std::string operators_page() {
  const std::vector<OperatorSample> samples = operator_samples(6, 4);
  std::vector<std::string> rules(samples.size());
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::string text = rules_of(check_rule(samples[i].run, samples[i].inputs, mesh));
      if (group.rank() == 0) rules[i] = text;
    }
  });
  const std::vector<std::string> devices = devices_of_all(samples);
  std::ostringstream page;
  page << "# Operators\n\n"
          "Made by tests/dtensor/check_rule_test.cc from a call of each operator; "
          "`DTRUN_WRITE_DOCS=1` writes it anew.\n\n"
          "A rule says how the operands may lie along one mesh axis, and how the result lies then; "
          "all whole (R) is always allowed.\n"
          "What no rule allows is redistributed first. The samples are matrices of 6 x 4.\n";
  page << "Devices are where the sample ran, on a simulated CUDA device, with the CPU's result; "
          "what "
          "is missing there is refused by name.\n";
  std::string family;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].family != family) {
      family = samples[i].family;
      page << "\n## " << family
           << "\n\n| operator | dtypes | gradient | devices | rules |\n|---|---|---|---|---|\n";
    }
    page << "| " << samples[i].name << " | " << dtypes_of(samples[i]) << " | "
         << (has_gradient(samples[i]) ? "yes" : "no") << " | " << devices[i] << " | " << rules[i]
         << " |\n";
  }
  return page.str();
}

/// The functions on tensors that the public headers of operators declare.
std::set<std::string> declared_operators() {
  std::set<std::string> names;
  const std::set<std::string> made_of_nothing = {"creation.h", "random.h"};
  std::vector<std::filesystem::path> headers;
  for (const auto& entry :
       std::filesystem::directory_iterator(DTRUN_HEADERS "/dtrun/dtensor/ops")) {
    if (!made_of_nothing.contains(entry.path().filename())) headers.push_back(entry.path());
  }
  const std::regex declaration("^(Tensor|Tensors|Sorted|Extremes) ([a-z_0-9]+)\\(.*");
  for (const std::filesystem::path& header : headers) {
    std::ifstream file(header);
    std::smatch found;
    for (std::string line; std::getline(file, line);) {
      if (std::regex_match(line, found, declaration)) names.insert(found[2]);
    }
  }
  return names;
}

TEST(OperatorsPageTest, EveryOperatorIsOnIt) {
  std::set<std::string> sampled = {"sum_to",  // the gradient of broadcasting, an own one of none
                                   "empty_like"};  // its elements are any
  for (const OperatorSample& sample : operator_samples(6, 4)) {
    sampled.insert(sample.name.substr(0, sample.name.find(' ')));
  }
  const std::set<std::string> declared = declared_operators();
  EXPECT_GT(declared.size(), 100U);
  for (const std::string& name : declared) {
    EXPECT_TRUE(sampled.contains(name)) << name << " has no call in operator_samples.cc";
  }
}

TEST(OperatorsPageTest, DropoutDropsTheSameOnADevice) {
  if (!tensors::cuda::is_built()) GTEST_SKIP() << "built without CUDA: there are no kernels";
  const tensors::cuda::SimulatedDevices simulated;
  const OperatorSample sample{"",
                              "dropout",
                              [](const Tensors& in) { return dropout(in[0], {.p = 0.3}); },
                              {randn({6, 4}, {1}, {.dtype = DType::f64})}};
  EXPECT_EQ(devices_of(sample), "cpu, cuda");
}

TEST(OperatorsPageTest, TellsWhatIs) {
  const std::string path = DTRUN_DOCS "/operators.md", page = operators_page();
  if (std::getenv("DTRUN_WRITE_DOCS") != nullptr) std::ofstream(path) << page;
  std::ifstream file(path);
  std::ostringstream found;
  found << file.rdbuf();
  const bool knows_devices = tensors::cuda::is_built();
  EXPECT_TRUE(knows_devices ? found.str() == page
                            : without_devices(found.str()) == without_devices(page))
      << path
      << " is not true any more: run this test with DTRUN_WRITE_DOCS=1, and read the change";
}

}  // namespace
}  // namespace dtrun::dtensor
