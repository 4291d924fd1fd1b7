#include "dtrun/dtensor/ops/own_operator.h"

#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "autograd/call.h"
#include "dtrun/base/error.h"
#include "dtrun/base/split.h"
#include "ops/operator_dims.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

[[noreturn]] void refuse_rule(const OperatorDefinition& definition, const std::string& rule,
                              const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument,
              "the operator '" + definition.name + "' cannot have the rule \"" + rule + "\"", why,
              "write a placement for each operand and one for the result: \"P(sum), R -> P(sum)\"");
}

sharding::AxisRule read_rule(const OperatorDefinition& definition, const std::string& text,
                             const OperatorDims& dims) {
  const std::size_t inputs = dims.inputs();
  const std::size_t arrow = text.find("->");
  if (arrow == std::string::npos) refuse_rule(definition, text, "there is no \"->\"");
  const auto placement = [&](std::string_view one) {
    const std::string_view word = base::trimmed(one);
    if (word.empty()) refuse_rule(definition, text, "a placement is missing");
    return Placement::parse(word);
  };
  const std::string_view whole = text;
  sharding::AxisRule rule{{}, placement(whole.substr(arrow + 2))};
  for (const std::string_view operand : base::split(whole.substr(0, arrow), ','))
    rule.inputs.push_back(placement(operand));
  if (rule.inputs.size() != inputs) {
    refuse_rule(definition, text,
                "it has " + std::to_string(rule.inputs.size()) + " operands, and the operator " +
                    std::to_string(inputs));
  }
  for (std::size_t i = 0; i <= inputs; ++i) {
    const std::string why = dims.obstacle(i, i == inputs ? rule.output : rule.inputs[i]);
    if (!why.empty()) refuse_rule(definition, text, why);
  }
  return rule;
}

}  // namespace

struct OwnOperator::Body {
  /// The attribute that all calls of an operator have. Its place is its name.
  struct Itself {
    const Body* body = nullptr;
  };
  friend void append_key(CallKey&, const Itself&) {}

  explicit Body(OperatorDefinition its_definition)
      : definition(std::move(its_definition)),
        dims(definition.name, definition.dims, definition.whole) {
    if (!definition.kernel) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the operator '" + definition.name + "' has no kernel", "",
                  "define `kernel`: from the parts of the operands the part of the result");
    }
    for (const std::string& rule : definition.rules)
      rules.push_back(read_rule(definition, rule, dims));
    op.name = definition.name;
    op.meta = [](Metas in, const Itself& self) { return self.body->meta(in); };
    op.rules = [](Rules& r, Metas in, const Itself& self) { self.body->tell(r, in); };
    op.local = [](Locals in, const Itself& self, const None&, const Site& site) {
      return self.body->part(in, site);
    };
    if (!definition.backward) return;
    op.backward = [](const Context<Itself, None>& c) { return c.attributes().body->gradients(c); };
    // What backward needs is not known, so all operands and the result are kept.
    op.saves = {~std::uint32_t{0}, true};
  }

  Meta meta(Metas in) const {
    if (!definition.result) return {dims.result_shape(in), in[0].dtype};
    std::vector<ShapeAndDType> inputs;
    for (const Meta& input : in) inputs.push_back({input.shape, input.dtype});
    const ShapeAndDType result = definition.result(inputs);
    return {result.shape, result.dtype};
  }

  /// A rule of Partials that no tensor of those dtypes can be would be left out without a word.
  void check_partials(Metas in) const {
    const DType result = meta(in).dtype;
    for (std::size_t number = 0; number < rules.size(); ++number) {
      for (std::size_t i = 0; i <= in.size(); ++i) {
        const Placement& placement =
            i == in.size() ? rules[number].output : rules[number].inputs[i];
        const DType dtype = i == in.size() ? result : in[i].dtype;
        const bool can_be = !placement.is_partial() ||
                            collectives::reduce_op_supports(placement.reduce_op(), dtype);
        if (can_be) continue;
        refuse_rule(
            definition, definition.rules[number],
            (i == in.size() ? std::string("the result") : "operand " + std::to_string(i + 1)) +
                " is " + std::string(tensors::dtype_name(dtype)) + ", which cannot be " +
                placement.to_string());
      }
    }
  }

  void tell(Rules& r, Metas in) const {
    check_partials(in);
    r.indices(dims.input_indices(in), dims.output_indices(in)).cut_all(definition.reduces);
    for (const sharding::AxisRule& rule : rules) r.also(rule.inputs, rule.output);
  }

  LocalTensor part(Locals in, const Site& site) const {
    LocalTensors parts;
    std::vector<Meta> metas;
    for (std::size_t i = 0; i < in.size(); ++i) {
      parts.push_back(in[i]);
      metas.push_back({in[i].shape(), in[i].dtype()});
    }
    LocalTensor result =
        definition.kernel(parts, {{site.inputs.begin(), site.inputs.end()}, site.output});
    const Meta claimed =
        site.output ? Meta{site.output.local_box().shape, site.output.dtype()} : meta(metas);
    if (!result.defined() || result.shape() != claimed.shape || result.dtype() != claimed.dtype)
      refuse_part(result, claimed);
    return result;
  }

  [[noreturn]] void refuse_part(const LocalTensor& result, const Meta& claimed) const {
    const auto text = [](const Shape& shape, DType dtype) {
      return std::string(tensors::dtype_short_name(dtype)) + tensors::shape_to_string(shape);
    };
    throw Error(ErrorCode::kInvalidArgument,
                "the kernel of '" + definition.name + "' gave " +
                    (result.defined() ? text(result.shape(), result.dtype())
                                      : std::string("an undefined tensor")),
                "by its dims, \"" + definition.dims + "\", this rank's part is " +
                    text(claimed.shape, claimed.dtype),
                "give that, or define `result`");
  }

  Tensors gradients(const Context<Itself, None>& c) const {
    Tensors inputs;
    for (std::size_t i = 0; i < c.inputs(); ++i) inputs.push_back(c.input(i));
    Tensors all = definition.backward(inputs, c.output(), c.grad());
    if (all.size() == c.inputs()) return all;
    throw Error(ErrorCode::kInvalidArgument,
                "the backward of '" + definition.name + "' gave " + std::to_string(all.size()) +
                    " gradients",
                "it has " + std::to_string(c.inputs()) + " operands",
                "give one for each, an undefined Tensor where none flows");
  }

  const OperatorDefinition definition;
  const OperatorDims dims;
  std::vector<sharding::AxisRule> rules;
  Op<Itself> op{};
};

OwnOperator::OwnOperator(OperatorDefinition definition) {
  static std::mutex mutex;
  // What meshes remember of calls names an operator by its place.
  static auto& all = *new std::deque<std::unique_ptr<const Body>>;
  auto body = std::make_unique<const Body>(std::move(definition));
  body_ = body.get();
  const std::lock_guard lock(mutex);
  all.push_back(std::move(body));
}

Tensor OwnOperator::operator()(const Tensors& inputs) const {
  if (inputs.size() != body_->dims.inputs()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        body_->definition.name + " was called with " + std::to_string(inputs.size()) + " operands",
        "its dims are \"" + body_->definition.dims + "\"",
        "a tensor for each list of letters before \"->\"");
  }
  std::vector<const Tensor*> operands;
  for (const Tensor& input : inputs) operands.push_back(&input);
  return call(body_->op, std::span<const Tensor* const>(operands), Body::Itself{body_});
}

}  // namespace dtrun::dtensor
