#include "dtensor/operator_samples.h"

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/random_state.h"
#include "dtrun/dtensor/ops/attention.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/convolution.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/random.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/views.h"

namespace dtrun::dtensor {
namespace {

/// The second of them, or the only one.
const Tensor& piece_of(const Tensors& pieces) {
  if (pieces.empty()) {
    throw base::Error(base::ErrorCode::kInvalidArgument, "a piece of a tensor that has none",
                      "its dim has no elements");
  }
  return pieces.size() > 1 ? pieces[1] : pieces[0];
}

class Samples {
 public:
  Samples(std::int64_t rows, std::int64_t columns) : rows_(rows), columns_(columns) {}

  void in(std::string family, DType stand_in = DType::f64) {
    family_ = std::move(family);
    stand_in_ = stand_in;
  }
  /// As many digits as an f32 has: small multiples of them are exact in f64.
  static Tensor short_numbers(const Tensor& a) { return a.to(DType::f32).to(DType::f64); }
  /// Another tensor each time, away from 0 and of both signs.
  Tensor made(const Shape& shape) {
    const Tensor normal = randn(shape, {++seed_}, {.dtype = DType::f64});
    return short_numbers(normal + sign(normal) * 0.25);
  }
  Tensor between(const Shape& shape, double low, double high) {
    const Tensor any = randn(shape, {++seed_}, {.dtype = DType::f64});
    return short_numbers(sigmoid(any) * (high - low) + low);
  }
  Tensor whole(const Shape& shape) { return floor(between(shape, 1, 9)); }
  Tensor numbers(const Shape& shape, std::int64_t below) {
    return floor(between(shape, 0, static_cast<double>(below))).to(DType::i64);
  }
  Tensor matrix() { return made({rows_, columns_}); }

  OperatorSample& add(std::string name, Tensors inputs, std::function<Tensor(const Tensors&)> run) {
    return all_.emplace_back(
        OperatorSample{family_, std::move(name), std::move(run), std::move(inputs), stand_in_});
  }
  /// @param change of a copy of the first input
  template <typename Change>
  void in_place(std::string name, Tensors inputs, Change change) {
    add(std::move(name), std::move(inputs), [change](const Tensors& in) {
      const Tensor copy = in[0].clone();
      change(copy, in);
      return copy;
    });
  }
  using OfOne = Tensor (*)(const Tensor&);
  using OfTwo = Tensor (*)(const Tensor&, const Tensor&);
  void of_one(const std::vector<std::pair<const char*, OfOne>>& ops, const Tensor& input) {
    for (const auto& [name, op] : ops) {
      add(name, {input}, [op = op](const Tensors& in) { return op(in[0]); });
    }
  }
  void of_two(const std::vector<std::pair<const char*, OfTwo>>& ops, const Tensor& a,
              const Tensor& b) {
    for (const auto& [name, op] : ops) {
      add(name, {a, b}, [op = op](const Tensors& in) { return op(in[0], in[1]); });
    }
  }

  void add_arithmetic();
  void add_unary();
  void add_comparisons();
  void add_reductions();
  void add_rows();
  void add_products();
  void add_views();
  void add_index();
  void add_networks();
  void add_in_place_arithmetic();
  void add_in_place_bits();
  void add_in_place_functions();
  void add_in_place_places();
  std::vector<OperatorSample> take() { return std::move(all_); }

 private:
  const std::int64_t rows_, columns_;
  std::string family_;
  DType stand_in_ = DType::f64;
  std::uint64_t seed_ = 0;
  std::vector<OperatorSample> all_;
};

void Samples::add_arithmetic() {
  in("Arithmetic");
  of_two({{"add", dtensor::add}, {"sub", sub}, {"mul", mul}, {"div", div}}, matrix(), matrix());
  of_two({{"pow", pow}}, between({rows_, columns_}, 0.5, 2), matrix());
  of_two({{"floor_divide", floor_divide},
          {"trunc_divide", trunc_divide},
          {"remainder", remainder},
          {"fmod", fmod}},
         whole({rows_, columns_}), whole({rows_, columns_}));
  of_two({{"atan2", atan2}, {"logaddexp", logaddexp}, {"maximum", maximum}, {"minimum", minimum}},
         matrix(), matrix());
  const auto number = [&](const char* name, Tensor (*op)(const Tensor&, Scalar)) {
    add(std::string(name) + " (number)", {whole({rows_, columns_})},
        [op](const Tensors& in) { return op(in[0], 3); });
  };
  number("add", dtensor::add);
  number("sub", sub);
  number("mul", mul);
  number("div", div);
  number("pow", pow);
  number("remainder", remainder);
  number("fmod", fmod);
  const Tensors three = {matrix(), matrix(), matrix()};
  add("addcmul", three, [](const Tensors& in) { return addcmul(in[0], in[1], in[2], 2); });
  add("addcdiv", three, [](const Tensors& in) { return addcdiv(in[0], in[1], in[2], 2); });
  add("lerp", three, [](const Tensors& in) { return lerp(in[0], in[1], in[2]); });
  add("lerp (number)", {three[0], three[1]},
      [](const Tensors& in) { return lerp(in[0], in[1], 0.25); });
  in("Bits", DType::i64);
  const Tensor a = numbers({rows_, columns_}, 8), b = numbers({rows_, columns_}, 8);
  of_two({{"bitwise_and", bitwise_and},
          {"bitwise_or", bitwise_or},
          {"bitwise_xor", bitwise_xor},
          {"bitwise_left_shift", bitwise_left_shift},
          {"bitwise_right_shift", bitwise_right_shift}},
         a, b);
  of_one({{"bitwise_not", bitwise_not}}, a);
}

void Samples::add_unary() {
  in("Functions of one tensor");
  of_one({{"neg", neg},
          {"abs", abs},
          {"sign", sign},
          {"square", square},
          {"floor", floor},
          {"ceil", ceil},
          {"round", round},
          {"trunc", trunc},
          {"exp", exp},
          {"expm1", expm1},
          {"reciprocal", reciprocal},
          {"sin", sin},
          {"cos", cos},
          {"tan", tan},
          {"sinh", sinh},
          {"cosh", cosh},
          {"tanh", tanh},
          {"atan", atan},
          {"asinh", asinh},
          {"erf", erf},
          {"erfc", erfc},
          {"sigmoid", sigmoid},
          {"relu", relu},
          {"silu", silu},
          {"mish", mish},
          {"hardsigmoid", hardsigmoid},
          {"relu6", relu6}},
         matrix());
  of_one({{"sqrt", sqrt},
          {"rsqrt", rsqrt},
          {"log", log},
          {"log2", log2},
          {"log10", log10},
          {"log1p", log1p},
          {"asin", asin},
          {"acos", acos},
          {"atanh", atanh}},
         between({rows_, columns_}, 0.1, 0.9));
  of_one({{"acosh", acosh}}, between({rows_, columns_}, 1.5, 3));
  const Tensor x = matrix(), y = matrix();
  add("leaky_relu", {x}, [](const Tensors& in) { return leaky_relu(in[0]); });
  add("elu", {x}, [](const Tensors& in) { return elu(in[0]); });
  add("gelu", {x}, [](const Tensors& in) { return gelu(in[0]); });
  add("gelu (tanh)", {x}, [](const Tensors& in) { return gelu(in[0], GeluForm::tanh); });
  add("softplus", {x}, [](const Tensors& in) { return softplus(in[0]); });
  add("hardtanh", {x}, [](const Tensors& in) { return hardtanh(in[0]); });
  add("clamp", {x}, [](const Tensors& in) { return clamp(in[0], -0.5, 0.5); });
  add("clamp of tensors", {x, y, y},
      [](const Tensors& in) { return clamp(in[0], in[1], in[2] + 1); });
  add("remainder of a number", {whole({rows_, columns_})},
      [](const Tensors& in) { return remainder(5, in[0]); });
  add("pow of a number", {x}, [](const Tensors& in) { return pow(2.0, in[0]); });
  add("div, rounded", {x, whole({rows_, columns_})},
      [](const Tensors& in) { return div(in[0], in[1], Rounding::floor); });
  of_one({{"zeros_like", zeros_like}, {"ones_like", ones_like}}, x);
  add("full_like", {x}, [](const Tensors& in) { return full_like(in[0], 2); });
  add("clone", {x}, [](const Tensors& in) { return in[0].clone(); });
  add("to", {x}, [](const Tensors& in) { return in[0].to(DType::f32); });
}

void Samples::add_comparisons() {
  in("Comparisons and choice");
  const Tensor a = whole({rows_, columns_}), b = whole({rows_, columns_});
  of_two({{"eq", eq},
          {"ne", ne},
          {"lt", lt},
          {"le", le},
          {"gt", gt},
          {"ge", ge},
          {"logical_and", logical_and},
          {"logical_or", logical_or},
          {"logical_xor", logical_xor}},
         a, b);
  of_one({{"logical_not", logical_not}, {"isnan", isnan}, {"isinf", isinf}, {"isfinite", isfinite}},
         a);
  const Tensor mask = gt(matrix(), 0);
  add("where", {mask, a, b}, [](const Tensors& in) { return where(in[0], in[1], in[2]); });
  add("masked_fill", {a, mask}, [](const Tensors& in) { return masked_fill(in[0], in[1], 1); });
}

void Samples::add_reductions() {
  in("Reductions and scans, along dim 0");
  const Tensor x = matrix();
  using OverDims = Tensor (*)(const Tensor&, const std::vector<int>&, bool);
  const std::vector<std::pair<const char*, OverDims>> over_dims = {
      {"sum", sum},   {"mean", mean},          {"any", any}, {"all", all}, {"amax", amax},
      {"amin", amin}, {"logsumexp", logsumexp}};
  for (const auto& [name, op] : over_dims) {
    add(name, {x}, [op = op](const Tensors& in) { return op(in[0], {0}, false); });
  }
  add("prod", {x}, [](const Tensors& in) { return prod(in[0], 0); });
  add("max", {x}, [](const Tensors& in) { return max(in[0], 0).values; });
  add("min", {x}, [](const Tensors& in) { return min(in[0], 0).values; });
  add("argmax", {x}, [](const Tensors& in) { return argmax(in[0], 0); });
  add("argmin", {x}, [](const Tensors& in) { return argmin(in[0], 0); });
  add("var", {x}, [](const Tensors& in) { return var(in[0], {0}); });
  add("stddev", {x}, [](const Tensors& in) { return stddev(in[0], {0}); });
  add("norm", {x}, [](const Tensors& in) { return norm(in[0], 2, {0}); });
  add("cumsum", {x}, [](const Tensors& in) { return cumsum(in[0], 0); });
  add("cumprod", {x}, [](const Tensors& in) { return cumprod(in[0], 0); });
}

void Samples::add_rows() {
  in("Rows and losses");
  const Tensor x = matrix(), weight = made({columns_}), bias = made({columns_});
  add("softmax", {x}, [](const Tensors& in) { return softmax(in[0], 1); });
  add("log_softmax", {x}, [](const Tensors& in) { return log_softmax(in[0], 1); });
  const Shape row = {columns_};
  add("layer_norm", {x, weight, bias},
      [row](const Tensors& in) { return layer_norm(in[0], row, in[1], in[2]); });
  add("rms_norm", {x, weight}, [row](const Tensors& in) { return rms_norm(in[0], row, in[1]); });
  const Tensor classes = numbers({rows_}, columns_);
  add("cross_entropy", {x, classes}, [](const Tensors& in) { return cross_entropy(in[0], in[1]); });
  add("nll_loss", {x, classes}, [](const Tensors& in) { return nll_loss(in[0], in[1]); });
  add("mse_loss", {x, matrix()}, [](const Tensors& in) { return mse_loss(in[0], in[1]); });
}

void Samples::add_products() {
  in("Products");
  const Tensor a = matrix(), b = made({columns_, rows_});
  of_two({{"matmul", matmul}, {"mm", mm}}, a, b);
  of_two({{"mv", mv}}, a, made({columns_}));
  of_two({{"dot", dot}}, made({columns_}), made({columns_}));
  of_two({{"bmm", bmm}}, made({2, rows_, columns_}), made({2, columns_, rows_}));
  add("addmm", {made({rows_}), a, b}, [](const Tensors& in) { return addmm(in[0], in[1], in[2]); });
  add("baddbmm", {made({2, rows_, rows_}), made({2, rows_, columns_}), made({2, columns_, rows_})},
      [](const Tensors& in) { return baddbmm(in[0], in[1], in[2]); });
  add("linear", {a, matrix(), made({rows_})},
      [](const Tensors& in) { return linear(in[0], in[1], in[2]); });
  add("einsum ij,jk->ik", {a, b}, [](const Tensors& in) { return einsum("ij,jk->ik", in); });
}

void Samples::add_views() {
  in("Views, joins and splits");
  const Tensor x = matrix();
  const std::int64_t rows = rows_, columns = columns_;
  add("view", {x}, [=](const Tensors& in) { return in[0].view({rows * columns}); });
  add("reshape", {x}, [=](const Tensors& in) { return in[0].reshape({1, rows, columns}); });
  add("transpose", {x}, [](const Tensors& in) { return in[0].transpose(0, 1); });
  add("permute", {x}, [](const Tensors& in) { return in[0].permute({1, 0}); });
  add("unsqueeze", {x}, [](const Tensors& in) { return in[0].unsqueeze(1); });
  add("squeeze", {made({rows_, 1})}, [](const Tensors& in) { return in[0].squeeze(1); });
  add("expand", {made({rows_, 1})}, [=](const Tensors& in) { return in[0].expand({rows, 3}); });
  add("slice", {x}, [](const Tensors& in) { return in[0].slice(0, 1, 9); });
  add("select", {x}, [rows](const Tensors& in) { return in[0].select(0, rows > 1 ? 1 : 0); });
  add("flatten", {x}, [](const Tensors& in) { return flatten(in[0]); });
  add("unflatten", {x}, [=](const Tensors& in) { return unflatten(in[0], 1, {1, columns}); });
  add("movedim", {x}, [](const Tensors& in) { return movedim(in[0], 0, 1); });
  add("repeat", {x}, [](const Tensors& in) { return repeat(in[0], {2, 1}); });
  add("cat", {x, matrix()}, [](const Tensors& in) { return cat(in, 0); });
  add("stack", {x, matrix()}, [](const Tensors& in) { return stack(in, 0); });
  add("split", {x}, [](const Tensors& in) { return piece_of(split(in[0], 1, 0)); });
  add("chunk", {x}, [](const Tensors& in) { return piece_of(chunk(in[0], 2, 0)); });
  add("unbind", {x}, [](const Tensors& in) { return piece_of(unbind(in[0])); });
}

void Samples::add_index() {
  in("Picking, placing and ordering, along dim 0");
  const Tensor x = matrix(), list = numbers({3}, rows_), beside = numbers({2, columns_}, rows_);
  const Tensor slices = made({3, columns_}), elements = made({2, columns_});
  add("index_select", {x, list}, [](const Tensors& in) { return index_select(in[0], 0, in[1]); });
  add("index_add", {x, list, slices},
      [](const Tensors& in) { return index_add(in[0], 0, in[1], in[2]); });
  add("gather", {x, beside}, [](const Tensors& in) { return gather(in[0], 0, in[1]); });
  add("scatter_add", {x, beside, elements},
      [](const Tensors& in) { return scatter_add(in[0], 0, in[1], in[2]); });
  add("scatter", {x, arange(rows_).unsqueeze(1).expand({rows_, columns_}).clone(), matrix()},
      [](const Tensors& in) { return scatter(in[0], 0, in[1], in[2]); });
  const Tensor mask = gt(made({rows_, columns_}), 0);
  add("masked_select", {x, mask}, [](const Tensors& in) { return masked_select(in[0], in[1]); });
  add("nonzero", {mask}, [](const Tensors& in) { return nonzero(in[0]); }).stand_in =
      DType::boolean;
  add("index", {x, list}, [](const Tensors& in) { return index(in[0], in[1]); });
  add("index_put", {x, arange(2), made({2, columns_})},
      [](const Tensors& in) { return index_put(in[0], in[1], in[2]); });
  const Tensor line = numbers({3}, rows_), places = numbers({2, 1}, columns_);
  add("index of two", {x, line, places}, [](const Tensors& in) {
    return index(in[0], Tensors{in[1], in[2]});
  });
  add("index_put, accumulated", {x, line, places, made({2, 3})}, [](const Tensors& in) {
    return index_put(in[0], Tensors{in[1], in[2]}, in[3], PutMode::accumulate);
  });
  add("one_hot", {line}, [rows = rows_](const Tensors& in) {
    return one_hot(in[0], rows);
  }).stand_in = DType::i64;
  add("embedding", {x, numbers({2, 3}, rows_)},
      [](const Tensors& in) { return embedding(in[1], in[0]); });
  add("flip", {x}, [](const Tensors& in) { return flip(in[0], {0}); });
  add("roll", {x}, [](const Tensors& in) { return roll(in[0], {1}, {0}); });
  add("tril", {x}, [](const Tensors& in) { return tril(in[0]); });
  add("triu", {x}, [](const Tensors& in) { return triu(in[0], 1); });
  add("pad", {x}, [](const Tensors& in) { return pad(in[0], {0, 0, 1, 2}); });
  add("sort", {x}, [](const Tensors& in) { return sort(in[0], 0).values; });
  add("argsort", {x}, [](const Tensors& in) { return argsort(in[0], 0); });
  add("topk", {x}, [](const Tensors& in) { return topk(in[0], 2, 0).values; });
}

void Samples::add_networks() {
  in("Networks");
  const Shape heads = {2, 2, rows_, 4};
  add("scaled_dot_product_attention", {made(heads), made(heads), made(heads)},
      [](const Tensors& in) {
        return scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true});
      });
  add("scaled_dot_product_attention, dropped", {made(heads), made(heads), made(heads)},
      [](const Tensors& in) {
        const RandomScope scope({});
        return scaled_dot_product_attention(in[0], in[1], in[2],
                                            {.is_causal = true, .dropout_p = 0.3});
      });
  add("conv2d", {made({2, 2, rows_, columns_}), made({4, 2, 2, 2}), made({4})},
      [](const Tensors& in) { return conv2d(in[0], in[1], in[2]); });
  add("dropout", {matrix()}, [](const Tensors& in) {
    const RandomScope scope({});  // the same each time
    return dropout(in[0], {.p = 0.3});
  });
}

void Samples::add_in_place_arithmetic() {
  in("In place, on a copy");
  const Shape shape = {rows_, columns_};
  const Tensors two = {matrix(), matrix()}, three = {matrix(), matrix(), matrix()};
  const Tensors whole_ones = {whole(shape), whole(shape)};
  const Tensors with_power = {between(shape, 0.5, 2), matrix()};
  in_place("add_", two, [](const Tensor& x, const Tensors& in) { x.add_(in[1]); });
  in_place("add_, times", two, [](const Tensor& x, const Tensors& in) { x.add_(in[1], 2); });
  in_place("sub_", two, [](const Tensor& x, const Tensors& in) { x.sub_(in[1]); });
  in_place("sub_, times", two, [](const Tensor& x, const Tensors& in) { x.sub_(in[1], 2); });
  in_place("mul_", two, [](const Tensor& x, const Tensors& in) { x.mul_(in[1]); });
  in_place("div_", whole_ones, [](const Tensor& x, const Tensors& in) { x.div_(in[1]); });
  const auto more = [&](const char* name,
                        const Tensor& (InPlaceMethods::*form)(const Tensor&) const,
                        const Tensors& inputs) {
    in_place(name, inputs, [form](const Tensor& x, const Tensors& in) { (x.*form)(in[1]); });
  };
  more("floor_divide_", &Tensor::floor_divide_, whole_ones);
  more("remainder_", &Tensor::remainder_, whole_ones);
  more("fmod_", &Tensor::fmod_, whole_ones);
  more("atan2_", &Tensor::atan2_, two);
  more("logical_and_", &Tensor::logical_and_, two);
  more("logical_or_", &Tensor::logical_or_, two);
  more("logical_xor_", &Tensor::logical_xor_, two);
  in_place("pow_", with_power, [](const Tensor& x, const Tensors& in) { x.pow_(in[1]); });
  const Tensors one = {whole(shape)};
  in_place("add_ (number)", one, [](const Tensor& x, const Tensors&) { x.add_(3); });
  in_place("sub_ (number)", one, [](const Tensor& x, const Tensors&) { x.sub_(3); });
  in_place("mul_ (number)", one, [](const Tensor& x, const Tensors&) { x.mul_(3); });
  in_place("div_ (number)", one, [](const Tensor& x, const Tensors&) { x.div_(3); });
  in_place("pow_ (number)", one, [](const Tensor& x, const Tensors&) { x.pow_(3); });
  in_place("addcmul_", three,
           [](const Tensor& x, const Tensors& in) { x.addcmul_(in[1], in[2], 2); });
  in_place("addcdiv_", three,
           [](const Tensor& x, const Tensors& in) { x.addcdiv_(in[1], in[2], 2); });
  in_place("lerp_", three, [](const Tensor& x, const Tensors& in) { x.lerp_(in[1], in[2]); });
  in_place("lerp_ (number)", two, [](const Tensor& x, const Tensors& in) { x.lerp_(in[1], 0.25); });
}

void Samples::add_in_place_bits() {
  in("Bits, in place, on a copy", DType::i64);
  const Tensors two = {numbers({rows_, columns_}, 8), numbers({rows_, columns_}, 8)};
  using Form = const Tensor& (InPlaceMethods::*)(const Tensor&) const;
  const std::vector<std::pair<const char*, Form>> forms = {
      {"bitwise_and_", &Tensor::bitwise_and_},
      {"bitwise_or_", &Tensor::bitwise_or_},
      {"bitwise_xor_", &Tensor::bitwise_xor_},
      {"bitwise_left_shift_", &Tensor::bitwise_left_shift_},
      {"bitwise_right_shift_", &Tensor::bitwise_right_shift_}};
  for (const auto& [name, form] : forms) {
    in_place(name, two, [form = form](const Tensor& x, const Tensors& in) { (x.*form)(in[1]); });
  }
  in_place("bitwise_not_", {two[0]}, [](const Tensor& x, const Tensors&) { x.bitwise_not_(); });
}

void Samples::add_in_place_functions() {
  const Tensor x = matrix(), positive = between({rows_, columns_}, 0.1, 0.9);
  using Change = std::function<void(const Tensor&)>;
  const auto all = [&](const std::vector<std::pair<const char*, Change>>& changes,
                       const Tensor& input) {
    for (const auto& [name, change] : changes) {
      in_place(name, {input},
               [change = change](const Tensor& copy, const Tensors&) { change(copy); });
    }
  };
  all({{"neg_", &Tensor::neg_},
       {"abs_", &Tensor::abs_},
       {"exp_", &Tensor::exp_},
       {"reciprocal_", &Tensor::reciprocal_},
       {"sigmoid_", &Tensor::sigmoid_},
       {"tanh_", &Tensor::tanh_},
       {"relu_", &Tensor::relu_},
       {"floor_", &Tensor::floor_},
       {"ceil_", &Tensor::ceil_},
       {"round_", &Tensor::round_},
       {"trunc_", &Tensor::trunc_},
       {"square_", &Tensor::square_},
       {"sign_", &Tensor::sign_},
       {"sin_", &Tensor::sin_},
       {"cos_", &Tensor::cos_},
       {"tan_", &Tensor::tan_},
       {"sinh_", &Tensor::sinh_},
       {"cosh_", &Tensor::cosh_},
       {"atan_", &Tensor::atan_},
       {"asinh_", &Tensor::asinh_},
       {"erf_", &Tensor::erf_},
       {"erfc_", &Tensor::erfc_},
       {"expm1_", &Tensor::expm1_},
       {"logical_not_", &Tensor::logical_not_},
       {"zero_", &Tensor::zero_},
       {"fill_", [](const Tensor& copy) { copy.fill_(2); }},
       {"clamp_", [](const Tensor& copy) { copy.clamp_(-0.5, 0.5); }}},
      x);
  all({{"log_", &Tensor::log_},
       {"sqrt_", &Tensor::sqrt_},
       {"rsqrt_", &Tensor::rsqrt_},
       {"log2_", &Tensor::log2_},
       {"log10_", &Tensor::log10_},
       {"log1p_", &Tensor::log1p_},
       {"asin_", &Tensor::asin_},
       {"acos_", &Tensor::acos_},
       {"atanh_", &Tensor::atanh_}},
      positive);
  all({{"acosh_", &Tensor::acosh_}}, between({rows_, columns_}, 1.5, 3));
}

void Samples::add_in_place_places() {
  const Tensor x = matrix(), mask = gt(matrix(), 0);
  in_place("copy_", {x, matrix()},
           [](const Tensor& copy, const Tensors& in) { copy.copy_(in[1]); });
  in_place("masked_fill_", {x, mask},
           [](const Tensor& copy, const Tensors& in) { copy.masked_fill_(in[1], 1); });
  const Tensor list = numbers({3}, rows_), beside = numbers({2, columns_}, rows_);
  in_place("index_add_", {x, list, made({3, columns_})},
           [](const Tensor& copy, const Tensors& in) { copy.index_add_(0, in[1], in[2]); });
  in_place("index_put_", {x, arange(2), made({2, columns_})},
           [](const Tensor& copy, const Tensors& in) { copy.index_put_({in[1]}, in[2]); });
  in_place("scatter_", {x, arange(rows_).unsqueeze(1).expand({rows_, columns_}).clone(), matrix()},
           [](const Tensor& copy, const Tensors& in) { copy.scatter_(0, in[1], in[2]); });
  in_place("scatter_add_", {x, beside, made({2, columns_})},
           [](const Tensor& copy, const Tensors& in) { copy.scatter_add_(0, in[1], in[2]); });
  in_place("tril_", {x}, [](const Tensor& copy, const Tensors&) { copy.tril_(); });
  in_place("triu_", {x}, [](const Tensor& copy, const Tensors&) { copy.triu_(1); });
  in_place("cumsum_", {x}, [](const Tensor& copy, const Tensors&) { copy.cumsum_(0); });
  in_place("cumprod_", {x}, [](const Tensor& copy, const Tensors&) { copy.cumprod_(0); });
}

}  // namespace

Tensors OperatorSample::inputs_in(DType dtype) const {
  Tensors others;
  for (const Tensor& input : inputs) {
    others.push_back(input.dtype() == stand_in ? input.to(dtype) : input);
  }
  return others;
}

std::vector<OperatorSample> operator_samples(std::int64_t rows, std::int64_t columns) {
  Samples samples(rows, columns);
  samples.add_arithmetic();
  samples.add_unary();
  samples.add_comparisons();
  samples.add_reductions();
  samples.add_rows();
  samples.add_products();
  samples.add_views();
  samples.add_index();
  samples.add_networks();
  samples.add_in_place_arithmetic();
  samples.add_in_place_functions();
  samples.add_in_place_places();
  samples.add_in_place_bits();
  return samples.take();
}

}  // namespace dtrun::dtensor
