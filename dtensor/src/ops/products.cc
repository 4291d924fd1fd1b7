// Products that are made of matmul.
#include "dtrun/dtensor/ops/products.h"

#include <algorithm>
#include <map>
#include <string>

#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/tensor/ops.h"
#include "ops/add_matmul.h"

namespace dtrun::dtensor {
namespace {

void check_dims(const char* op, const Tensor& a, int of_a, const Tensor& b, int of_b) {
  if (a.dim() == of_a && b.dim() == of_b) return;
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    std::string(op) + " of shapes " + tensors::shape_to_string(a.shape()) +
                        " and " + tensors::shape_to_string(b.shape()),
                    "it takes " + std::to_string(of_a) + " and " + std::to_string(of_b) + " dims",
                    "matmul() takes all");
}

void check_batches(const char* op, const Tensor& a, const Tensor& b) {
  check_dims(op, a, 3, b, 3);
  if (a.size(0) == b.size(0)) return;
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    std::string(op) + " of shapes " + tensors::shape_to_string(a.shape()) +
                        " and " + tensors::shape_to_string(b.shape()),
                    "the batches differ", "matmul() broadcasts them");
}

[[noreturn]] void refuse_einsum(std::string_view equation, std::string why, std::string remedy) {
  throw base::Error(base::ErrorCode::kInvalidArgument, "einsum(\"" + std::string(equation) + "\")",
                    std::move(why), std::move(remedy));
}

/// "..." in a parsed equation. Its dims then get letters of their own, all below 'A'.
constexpr char kEllipsis = '.';
char letter_of_ellipsis(std::size_t dim) {
  return static_cast<char>(1 + dim);
}
constexpr std::size_t kMostDimsOfEllipsis = 'A' - 1;

std::string name_of(char letter) {
  if (letter < 'A') return "dim " + std::to_string(letter - 1) + " of the ellipsis";
  return "'" + std::string(1, letter) + "'";
}

struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

/// The ellipsis, and the letters that stand once, sorted.
std::string implied_output(const std::vector<std::string>& inputs) {
  std::map<char, int> counts;
  for (const std::string& letters : inputs) {
    for (const char letter : letters) ++counts[letter];
  }
  std::string output(counts.contains(kEllipsis) ? 1 : 0, kEllipsis);
  for (const auto& [letter, count] : counts) {
    if (count == 1 && letter != kEllipsis) output += letter;
  }
  return output;
}

void check_letters(std::string_view equation, const std::string& letters) {
  for (const char letter : letters) {
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    if (!is_letter && letter != kEllipsis)
      refuse_einsum(equation, "'" + std::string(1, letter) + "' is no letter", "a to z, or A to Z");
  }
  if (std::ranges::count(letters, kEllipsis) > 1) {
    refuse_einsum(equation, "one tensor has two ellipses",
                  "one that stands for all dims without "
                  "a letter, and letters for the others");
  }
}

/// With one character for each ellipsis.
std::string with_short_ellipses(std::string_view equation, std::string text) {
  for (std::size_t at = 0; (at = text.find('.', at)) != std::string::npos; ++at) {
    if (text.compare(at, 3, "...") != 0)
      refuse_einsum(equation, "'.' is no letter", "three dots for an ellipsis");
    text.replace(at, 3, 1, kEllipsis);
  }
  return text;
}

void check_once(std::string_view equation, const std::string& output) {
  for (const char letter : output) {
    if (letter != kEllipsis && std::ranges::count(output, letter) > 1) {
      refuse_einsum(equation,
                    "'" + std::string(1, letter) + "' stands twice in the result, " + output,
                    "each letter of the result once");
    }
  }
}

Equation parse(std::string_view equation) {
  std::string text;
  std::ranges::copy_if(equation, std::back_inserter(text), [](char c) { return c != ' '; });
  text = with_short_ellipses(equation, text);
  Equation parsed;
  const std::size_t arrow = text.find("->");
  std::string inputs = text.substr(0, arrow);
  for (std::size_t start = 0;;) {
    const std::size_t comma = inputs.find(',', start);
    parsed.inputs.push_back(inputs.substr(start, comma - start));
    if (comma == std::string::npos) break;
    start = comma + 1;
  }
  for (const std::string& letters : parsed.inputs) check_letters(equation, letters);
  parsed.output =
      arrow == std::string::npos ? implied_output(parsed.inputs) : text.substr(arrow + 2);
  check_letters(equation, parsed.output);
  check_once(equation, parsed.output);
  return parsed;
}

/// An operand and what its dims are called.
struct Named {
  Tensor tensor;
  std::string letters;

  bool has(char letter) const { return letters.find(letter) != std::string::npos; }
  std::int64_t size(char letter) const {
    return tensor.size(static_cast<int>(letters.find(letter)));
  }
  /// Its dims in this order.
  Named ordered(const std::string& order) const {
    std::vector<int> dims;
    for (const char letter : order) dims.push_back(static_cast<int>(letters.find(letter)));
    return {order == letters ? tensor : tensor.permute(dims), order};
  }
  /// Without the letters that nobody asks for.
  Named summed(const std::string& kept) const {
    std::vector<int> gone;
    Named rest;
    for (std::size_t d = 0; d < letters.size(); ++d) {
      if (kept.find(letters[d]) == std::string::npos) {
        gone.push_back(static_cast<int>(d));
      } else {
        rest.letters += letters[d];
      }
    }
    rest.tensor = gone.empty() ? tensor : sum(tensor, gone);
    return rest;
  }
};

/// How many dims of the operand have no letter.
std::size_t dims_of_ellipsis(std::string_view equation, const std::string& letters,
                             const Tensor& operand) {
  if (letters.find(kEllipsis) == std::string::npos) return 0;
  const std::size_t dims = operand.shape().size(), named = letters.size() - 1;
  if (named <= dims && dims - named <= kMostDimsOfEllipsis) return dims - named;
  refuse_einsum(equation,
                std::to_string(named) + " letters and an ellipsis stand for a tensor of shape " +
                    tensors::shape_to_string(operand.shape()),
                "beside an ellipsis no more letters than dims, and no fewer than those less " +
                    std::to_string(kMostDimsOfEllipsis));
}

/// The dims of the ellipses get letters; the last ones of all operands the same ones, as they
/// broadcast.
void name_ellipses(std::string_view equation, const Tensors& operands, Equation& parsed) {
  std::size_t most = 0;
  for (std::size_t i = 0; i < operands.size(); ++i)
    most = std::max(most, dims_of_ellipsis(equation, parsed.inputs[i], operands[i]));
  const auto name_last = [&](std::string& letters, std::size_t dims) {
    const std::size_t at = letters.find(kEllipsis);
    if (at == std::string::npos) return;
    std::string named;
    for (std::size_t d = most - dims; d < most; ++d) named += letter_of_ellipsis(d);
    letters.replace(at, 1, named);
  };
  for (std::size_t i = 0; i < operands.size(); ++i)
    name_last(parsed.inputs[i], dims_of_ellipsis(equation, parsed.inputs[i], operands[i]));
  name_last(parsed.output, most);
}

/// The elements whose indices along both dims are equal; the second dim goes. A pick, not a product
/// with ones and zeros: nan and -0 stay what they are.
Tensor diagonal_of(const Tensor& a, int first, int second) {
  const std::int64_t count = a.size(first);
  Shape line(a.shape().size(), 1);
  line[static_cast<std::size_t>(first)] = count;
  Shape picked = a.shape();
  picked[static_cast<std::size_t>(second)] = 1;
  Tensor places(
      tensors::arange(count, {DType::i64, a.device()}).view(line).expand(picked).contiguous());
  if (a.is_distributed()) {
    places =
        Tensor::from_local(places, a.device_mesh(), Placements(a.placements().size(), Replicate()));
  }
  return gather(a, second, places).squeeze(second);
}

/// "ii" is the diagonal "i".
Named without_repeats(std::string_view equation, Named operand) {
  const bool fits = operand.tensor.dim() == static_cast<int>(operand.letters.size());
  for (std::size_t second = 1; fits && second < operand.letters.size(); ++second) {
    const char letter = operand.letters[second];
    const std::size_t first = operand.letters.find(letter);
    if (first == second) continue;
    const auto one = static_cast<int>(first), other = static_cast<int>(second);
    if (operand.tensor.size(one) != operand.tensor.size(other)) {
      refuse_einsum(equation,
                    "'" + std::string(1, letter) + "' is " +
                        std::to_string(operand.tensor.size(one)) + " and " +
                        std::to_string(operand.tensor.size(other)),
                    "a letter twice only for dims of one size; narrow() one of them, or give it "
                    "another letter");
    }
    operand.tensor = diagonal_of(operand.tensor, one, other);
    operand.letters.erase(second--, 1);
  }
  return operand;
}

std::int64_t count_of(const Named& operand, const std::string& letters) {
  std::int64_t count = 1;
  for (const char letter : letters) count *= operand.size(letter);
  return count;
}

/// Without a sum: each element of one with each of the other, of any dtypes.
Named multiplied(const Named& a, const Named& b, const std::string& batch, const std::string& left,
                 const std::string& right) {
  Shape of_a, of_b;
  for (const char letter : batch + left) of_a.push_back(a.size(letter));
  for (std::size_t d = 0; d < right.size(); ++d) of_a.push_back(1);
  for (const char letter : batch) of_b.push_back(b.size(letter));
  for (std::size_t d = 0; d < left.size(); ++d) of_b.push_back(1);
  for (const char letter : right) of_b.push_back(b.size(letter));
  return {mul(a.ordered(batch + left).tensor.reshape(of_a),
              b.ordered(batch + right).tensor.reshape(of_b)),
          batch + left + right};
}

/// One product of matrices: [batch, left, inner] with [batch, inner, right].
Named product(const Named& a, const Named& b, const std::string& kept) {
  std::string batch, inner, left, right;
  for (const char letter : a.letters) {
    const bool stays = kept.find(letter) != std::string::npos;
    if (!b.has(letter)) {
      left += letter;
    } else if (stays) {
      batch += letter;
    } else {
      inner += letter;
    }
  }
  for (const char letter : b.letters) {
    if (!a.has(letter)) right += letter;
  }
  if (inner.empty()) return multiplied(a, b, batch, left, right);
  const std::int64_t batches = count_of(a, batch);
  const std::int64_t inners = count_of(a, inner);
  const Tensor x =
      a.ordered(batch + left + inner).tensor.reshape({batches, count_of(a, left), inners});
  const Tensor y =
      b.ordered(batch + inner + right).tensor.reshape({batches, inners, count_of(b, right)});
  Shape shape;
  for (const char letter : batch + left) shape.push_back(a.size(letter));
  for (const char letter : right) shape.push_back(b.size(letter));
  return {matmul(x, y).reshape(shape), batch + left + right};
}

void check_sizes(std::string_view equation, const std::vector<Named>& operands,
                 const std::string& output) {
  std::map<char, std::int64_t> sizes;
  for (const Named& operand : operands) {
    if (operand.tensor.dim() != static_cast<int>(operand.letters.size())) {
      refuse_einsum(equation,
                    "'" + operand.letters + "' stands for a tensor of shape " +
                        tensors::shape_to_string(operand.tensor.shape()),
                    "one letter for each dim, or an ellipsis for those without one");
    }
    for (const char letter : operand.letters) {
      const auto [known, is_new] = sizes.emplace(letter, operand.size(letter));
      if (!is_new && known->second != operand.size(letter)) {
        refuse_einsum(equation,
                      name_of(letter) + " is " + std::to_string(known->second) + " and " +
                          std::to_string(operand.size(letter)),
                      "one size for each letter, or 1, which broadcasts; transpose() an operand "
                      "whose dims stand in another order");
      }
    }
  }
  for (const char letter : output) {
    if (!sizes.contains(letter)) {
      refuse_einsum(equation, "'" + std::string(1, letter) + "' of the result stands nowhere else",
                    "in the result letters of the operands; unsqueeze() adds a dim");
    }
  }
}

/// A dim of one element is repeated where another operand's is larger: it is as good as none.
void drop_repeated(std::vector<Named>& operands) {
  std::map<char, std::int64_t> sizes;
  for (const Named& operand : operands) {
    if (operand.tensor.dim() != static_cast<int>(operand.letters.size())) return;
    for (const char letter : operand.letters) {
      std::int64_t& size = sizes.emplace(letter, 1).first->second;
      if (operand.size(letter) != 1) size = operand.size(letter);
    }
  }
  for (Named& operand : operands) {
    for (std::size_t d = operand.letters.size(); d-- > 0;) {
      if (operand.tensor.size(static_cast<int>(d)) == sizes.at(operand.letters[d])) continue;
      if (operand.tensor.size(static_cast<int>(d)) != 1) continue;
      operand.tensor = operand.tensor.squeeze(static_cast<int>(d));
      operand.letters.erase(d, 1);
    }
  }
}

}  // namespace

Tensor mm(const Tensor& a, const Tensor& b) {
  return named_call("mm", {{"input", a}, {"mat2", b}}, [&] {
    check_dims("mm", a, 2, b, 2);
    return matmul(a, b);
  });
}
Tensor bmm(const Tensor& a, const Tensor& b) {
  return named_call("bmm", {{"input", a}, {"mat2", b}}, [&] {
    check_batches("bmm", a, b);
    return matmul(a, b);
  });
}
Tensor mv(const Tensor& a, const Tensor& b) {
  return named_call("mv", {{"input", a}, {"vec", b}}, [&] {
    check_dims("mv", a, 2, b, 1);
    return matmul(a, b);
  });
}
Tensor dot(const Tensor& a, const Tensor& b) {
  return named_call("dot", {{"input", a}, {"tensor", b}}, [&] {
    check_dims("dot", a, 1, b, 1);
    return matmul(a, b);
  });
}
Tensor addmm(const Tensor& sum, const Tensor& a, const Tensor& b, ProductSum factors) {
  return named_call("addmm", {{"input", sum}, {"mat1", a}, {"mat2", b}}, [&] {
    check_dims("addmm", a, 2, b, 2);
    return add_matmul(AddMatmulFor::addmm, sum, a, b, factors);
  });
}
Tensor baddbmm(const Tensor& sum, const Tensor& a, const Tensor& b, ProductSum factors) {
  return named_call("baddbmm", {{"input", sum}, {"batch1", a}, {"batch2", b}}, [&] {
    check_batches("baddbmm", a, b);
    return add_matmul(AddMatmulFor::baddbmm, sum, a, b, factors);
  });
}

namespace {

Tensor einsum_of(std::string_view equation, const Tensors& operands) {
  Equation parsed = parse(equation);
  if (parsed.inputs.size() != operands.size()) {
    refuse_einsum(equation,
                  "it names " + std::to_string(parsed.inputs.size()) + " operands, and was given " +
                      std::to_string(operands.size()),
                  "a comma between the letters of two operands");
  }
  name_ellipses(equation, operands, parsed);
  std::vector<Named> named;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    named.push_back(without_repeats(equation, {operands[i], parsed.inputs[i]}));
  }
  drop_repeated(named);
  check_sizes(equation, named, parsed.output);
  Named result = named[0];
  for (std::size_t i = 1; i <= named.size(); ++i) {
    // What later operands or the result ask for.
    std::string kept = parsed.output;
    for (std::size_t later = i; later < named.size(); ++later) kept += named[later].letters;
    result = result.summed(kept);
    if (i == named.size()) break;
    std::string after = parsed.output;
    for (std::size_t later = i + 1; later < named.size(); ++later) after += named[later].letters;
    result = product(result, named[i].summed(after + result.letters), after);
  }
  return result.ordered(parsed.output).tensor;
}

}  // namespace

Tensor einsum(std::string_view equation, const Tensors& operands) {
  return named_call("einsum", {{"operands", operands}},
                    [&] { return einsum_of(equation, operands); });
}

}  // namespace dtrun::dtensor
