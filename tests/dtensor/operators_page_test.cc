// docs/operators.md says what is: it is made of calls of every operator and factory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

#include "dtensor/factory_samples.h"
#include "dtensor/operator_devices.h"
#include "dtensor/operator_samples.h"
#include "dtensor/still_layouts.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/check_rule.h"
#include "dtrun/tensor/cuda.h"
#include "support/one_in.h"
#include "support/rank_threads.h"
#include "tensor/all_dtypes.h"
#include "tensor/simulated_devices.h"

namespace dtrun::dtensor {
namespace {

// tests/house refuses longer ones.
constexpr std::size_t kMostOfCell = 220;

/// Those that the call takes.
std::string dtypes_of(const std::function<void(DType)>& call) {
  std::set<DType> taken;
  for (const DType dtype : tensors::kAllDTypes) {
    try {
      call(dtype);
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

/// As many as a cell has room for.
std::string joined(std::string text, const std::vector<std::string>& rules) {
  const std::string more = "; and more";
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const std::size_t room = kMostOfCell - (i + 1 < rules.size() ? more.size() : 0);
    if (text.size() + 2 + rules[i].size() > room) return text + more;
    text += (text.empty() ? "" : "; ") + rules[i];
  }
  return text;
}

bool is_form_in_place(const OperatorSample& sample) {
  return sample.name.substr(0, sample.name.find_first_of(" ,")).ends_with('_');
}

/// The operators that were called, in their order, each once. What a sample of a form in place
/// copies before is none of them.
std::vector<std::string> parts_of(const OperatorSample& sample,
                                  const std::vector<CheckedRule>& checked) {
  std::vector<std::string> ops;
  for (const CheckedRule& rule : checked) {
    if (rule.caller == CheckedRule::Caller::gradient) continue;
    if (std::ranges::find(ops, rule.op) == ops.end()) ops.push_back(rule.op);
  }
  if (is_form_in_place(sample)) std::erase(ops, "clone");
  return ops;
}

/// Those of the operator's definition.
std::vector<std::string> own_rules(const std::vector<CheckedRule>& checked) {
  std::vector<std::string> rules;
  for (const CheckedRule& rule : checked) {
    const bool all_whole = rule.rule.find_first_of("SP") == std::string::npos;
    if (rule.caller == CheckedRule::Caller::gradient || all_whole) continue;
    if (std::ranges::find(rules, rule.rule) == rules.end()) rules.push_back(rule.rule);
  }
  return rules;
}

struct Row {
  std::string parts;  ///< empty: it is made of no other operators
  std::string rules;
};

Row row_of(const OperatorSample& sample, const DeviceMesh& mesh) {
  const std::vector<CheckedRule> checked = check_rule(sample.run, sample.inputs, mesh);
  const std::vector<std::string> parts = parts_of(sample, checked);
  if (parts.empty()) return {"", "cut as the operand, whole where it is Partial"};
  if (parts.size() == 1 && !is_form_in_place(sample)) return {"", joined("", own_rules(checked))};
  std::string names;
  for (const std::string& part : parts) names += (names.empty() ? "" : ", ") + part;
  const std::vector<std::string> still = still_layouts(sample.run, sample.inputs, mesh);
  return {names, still.empty() ? "something moves unless all is whole" : joined("", still)};
}

std::vector<std::string> devices_of_factories() {
  const std::vector<FactorySample> factories = factory_samples();
  std::vector<std::string> devices(factories.size());
  if (!tensors::cuda::is_built()) return devices;
  const tensors::cuda::SimulatedDevices simulated;
  std::ranges::transform(factories, devices.begin(),
                         [](const FactorySample& factory) { return devices_of(factory); });
  return devices;
}

std::vector<std::string> devices_of_all(const std::vector<OperatorSample>& samples) {
  std::vector<std::string> devices(samples.size());
  if (!tensors::cuda::is_built()) return devices;
  const tensors::cuda::SimulatedDevices simulated;
  std::ranges::transform(samples, devices.begin(),
                         [](const OperatorSample& sample) { return devices_of(sample); });
  return devices;
}

/// A build without CUDA does not know what a device can do.
std::string without_devices(const std::string& page) {
  return std::regex_replace(page, std::regex("\\| cpu[^|\n]* \\||\\|  \\|"), "||");
}

constexpr const char* kIntroduction =
    "# Operators\n\n"
    "What there is to call, for which dtypes, where, and how its operands may lie on a mesh. Made "
    "by tests/dtensor/operators_page_test.cc\n"
    "from a call of each with matrices of 6 x 4 on two ranks; `DTRUN_WRITE_DOCS=1` writes it "
    "anew.\n\n"
    "- **dtypes**: `all`; `numbers`, all but bool; `floating`, that is f64 f32 f16 bf16.\n"
    "- **gradient**: whether `backward()` goes through it.\n"
    "- **devices**: where the call ran, on a simulated CUDA device, with the CPU's result; what is "
    "missing there is refused by name.\n"
    "- **rules**: how the operands may lie along one mesh axis, and how the result lies then: "
    "`S(0)` cut along dim 0, `P(sum)` a sum that is still to be made, `R` whole on each rank.\n"
    "  `S(0), R -> S(0)`: of a first operand that is cut and a second that is whole comes a result "
    "that is cut. All whole is always allowed, and not listed.\n"
    "  Operands that lie otherwise are redistributed first, at the least cost.\n"
    "- **made of**: the operators that it calls. Its rules are the layouts in which none of these "
    "moves anything.\n";

/// @param rows of the samples
void write_table(std::ostream& page, const std::vector<OperatorSample>& samples,
                 const std::vector<std::string>& devices, const std::vector<Row>& rows) {
  std::string family;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].family != family) {
      family = samples[i].family;
      page << "\n## " << family
           << "\n\n| operator | dtypes | gradient | devices | rules | made of |\n"
              "|---|---|---|---|---|---|\n";
    }
    const OperatorSample& sample = samples[i];
    page << "| " << sample.name << " | "
         << dtypes_of([&](DType dtype) { sample.run(sample.inputs_in(dtype)); }) << " | "
         << (has_gradient(sample) ? "yes" : "no") << " | " << devices[i] << " | " << rows[i].rules
         << " | " << rows[i].parts << " |\n";
  }
}

void write_factories(std::ostream& page, const std::vector<std::string>& devices,
                     const std::vector<std::string>& placements) {
  const std::vector<FactorySample> factories = factory_samples();
  page << "\n## Factories\n\n"
          "On a mesh each rank makes its own part, in any placements, and nothing travels. The "
          "whole is what a local call gives.\n\n"
          "| factory | dtypes | devices | placements |\n|---|---|---|---|\n";
  for (std::size_t i = 0; i < factories.size(); ++i) {
    const FactorySample& factory = factories[i];
    page << "| " << factory.name << " | "
         << dtypes_of([&](DType dtype) { factory.local({.dtype = dtype}); }) << " | " << devices[i]
         << " | " << placements[i] << " |\n";
  }
}

std::string operators_page() {
  const std::vector<OperatorSample> samples = operator_samples(6, 4);
  std::vector<Row> rows(samples.size());
  std::vector<std::string> placements;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    for (std::size_t i = 0; i < samples.size(); ++i) {
      Row row = row_of(samples[i], mesh);
      if (group.rank() == 0) rows[i] = std::move(row);
    }
    for (const FactorySample& factory : factory_samples()) {
      std::string text = placements_of(factory, mesh);
      if (group.rank() == 0) placements.push_back(std::move(text));
    }
  });
  std::ostringstream page;
  page << kIntroduction;
  write_factories(page, devices_of_factories(), placements);
  write_table(page, samples, devices_of_all(samples), rows);
  return page.str();
}

/// The functions that give tensors and stand in the header.
std::set<std::string> declared_in(const std::filesystem::path& header) {
  const std::regex declaration("^(Tensor|Tensors|Sorted|Extremes) ([a-z_0-9]+)\\(.*");
  std::set<std::string> names;
  std::ifstream file(header);
  std::smatch found;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_match(line, found, declaration)) names.insert(found[2]);
  }
  return names;
}

/// The functions on tensors that the public headers of operators declare.
std::set<std::string> declared_operators() {
  std::set<std::string> names;
  const std::set<std::string> made_of_nothing = {"creation.h", "random.h"};
  for (const auto& entry :
       std::filesystem::directory_iterator(DTRUN_HEADERS "/dtrun/dtensor/ops")) {
    if (made_of_nothing.contains(entry.path().filename())) continue;
    const std::set<std::string> there = declared_in(entry.path());
    names.insert(there.begin(), there.end());
  }
  return names;
}

TEST(OperatorsPageTest, EveryOperatorIsOnIt) {
  std::set<std::string> sampled = {"sum_to",  // the gradient of broadcasting, an own one of none
                                   "empty_like",  // its elements are any
                                   "std"};        // stddev, by PyTorch's name
  for (const OperatorSample& sample : operator_samples(6, 4)) {
    sampled.insert(sample.name.substr(0, sample.name.find_first_of(" ,")));
  }
  const std::set<std::string> declared = declared_operators();
  EXPECT_GT(declared.size(), 100U);
  for (const std::string& name : declared) {
    EXPECT_TRUE(sampled.contains(name)) << name << " has no call in tests/dtensor/samples";
  }
}

TEST(OperatorsPageTest, EveryFactoryIsOnIt) {
  // What makes tensors of elements that are there already.
  std::set<std::string> sampled = {"from_blob",   "from_dlpack",       "load_npy", "tensor",
                                   "tensor_from", "distribute_tensor", "dropout"};
  for (const FactorySample& factory : factory_samples()) sampled.insert(factory.name);
  std::set<std::string> declared;
  for (const char* header : {"creation.h", "random.h"}) {
    const std::set<std::string> there =
        declared_in(std::string(DTRUN_HEADERS "/dtrun/dtensor/ops/") + header);
    declared.insert(there.begin(), there.end());
  }
  EXPECT_GT(declared.size(), 12U);
  for (const std::string& name : declared)
    EXPECT_TRUE(sampled.contains(name)) << name << " has no call in factory_samples.cc";
}

TEST(OperatorsPageTest, EveryFormInPlaceIsOnIt) {
  std::set<std::string> sampled;
  for (const OperatorSample& sample : operator_samples(6, 4))
    sampled.insert(sample.name.substr(0, sample.name.find_first_of(" ,")));
  const std::regex declaration(" +const Tensor& ([a-z_0-9]+_)\\(.*");
  std::ifstream file(DTRUN_HEADERS "/dtrun/dtensor/autograd/in_place_methods.h");
  std::set<std::string> declared;
  std::smatch found;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_match(line, found, declaration)) declared.insert(found[1]);
  }
  EXPECT_GT(declared.size(), 60U);
  for (const std::string& name : declared)
    EXPECT_TRUE(sampled.contains(name)) << name << " has no call in tests/dtensor/samples";
}

TEST(OperatorsPageTest, TellsWhatIs) {
  if (testing_support::one_in(3) > 1)
    GTEST_SKIP() << "a sanitizer changes nothing on the page, and CheckRuleTest runs its operators";
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
