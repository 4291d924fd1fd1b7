#include "ops/operator_dims.h"

#include <algorithm>
#include <cctype>

#include "dtrun/base/error.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using tensors::Shape;

// Beyond all letters, which are ASCII.
constexpr int kFirstDot = 128;

[[noreturn]] void refuse_dims(const std::string& name, const std::string& text,
                              const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument,
              "the operator '" + name + "' cannot have the dims \"" + text + "\"", why,
              "write a letter for each dim, as an einsum's: \"ij,jk->ik\", \"...i,i->...i\"");
}

}  // namespace

OperatorDims::Letters OperatorDims::read(const std::string& text) const {
  Letters letters;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text.compare(i, 3, "...") == 0 && letters.find('.') == Letters::npos) {
      letters += '.';
      i += 2;
      continue;
    }
    if (std::isalpha(static_cast<unsigned char>(text[i])) == 0)
      refuse_dims(name_, text_, "'" + text.substr(i, 1) + "' is no letter");
    if (letters.find(text[i]) != Letters::npos)
      refuse_dims(name_, text_, "one tensor has '" + text.substr(i, 1) + "' twice");
    letters += text[i];
  }
  return letters;
}

OperatorDims::OperatorDims(const std::string& name, const std::string& dims,
                           const std::string& whole)
    : name_(name), text_(dims), whole_(whole) {
  const std::size_t arrow = dims.find("->");
  if (arrow == std::string::npos) refuse_dims(name_, text_, "there is no \"->\"");
  const std::string operands = dims.substr(0, arrow);
  std::size_t begin = 0;
  for (std::size_t comma = 0; comma != std::string::npos; begin = comma + 1) {
    comma = operands.find(',', begin);
    const std::size_t size = comma == std::string::npos ? comma : comma - begin;
    inputs_.push_back(read(operands.substr(begin, size)));
  }
  output_ = read(dims.substr(arrow + 2));
  for (const char letter : whole_) {
    const bool is_known = std::ranges::any_of(inputs_, [&](const Letters& input) {
      return letter != '.' && input.find(letter) != Letters::npos;
    });
    if (!is_known)
      refuse_dims(name_, text_, std::string("no operand has '") + letter + "' of whole");
  }
}

std::string OperatorDims::obstacle(std::size_t tensor, const Placement& placement) const {
  if (!placement.is_shard()) return {};
  const bool is_result = tensor == inputs_.size();
  const Letters& letters = is_result ? output_ : inputs_[tensor];
  const std::string whose = is_result ? "the result" : "operand " + std::to_string(tensor + 1);
  const int dim = placement.dim();
  if (dim < 0) return "it cuts dim " + std::to_string(dim) + "; dims are counted from 0";
  const std::size_t dots = letters.find('.'), place = static_cast<std::size_t>(dim);
  if (dots == Letters::npos && place >= letters.size()) {
    return "it cuts dim " + std::to_string(dim) + " of " + whose + ", which has " +
           std::to_string(letters.size()) + " by the dims \"" + text_ + "\"";
  }
  if (place < dots && place < letters.size() && whole_.find(letters[place]) != Letters::npos) {
    return "it cuts '" + letters.substr(place, 1) + "' of " + whose +
           ", which `whole` says that no axis may cut";
  }
  return {};
}

std::vector<int> OperatorDims::spelled(const Letters& letters, std::size_t dims,
                                       const char* whose) const {
  const bool has_dots = letters.find('.') != Letters::npos;
  const std::size_t named = letters.size() - (has_dots ? 1 : 0);
  if (dims < named || (!has_dots && dims != named)) {
    throw Error(ErrorCode::kInvalidArgument,
                name_ + " got " + whose + " of " + std::to_string(dims) + " dims",
                "its dims are \"" + text_ + "\"",
                "tensors of these dims, or \"...\" where there may be more");
  }
  std::vector<int> spelling;
  for (const char letter : letters) {
    if (letter != '.') {
      spelling.push_back(letter);
      continue;
    }
    // Numbered from the right, so that the dims of "..." meet as those of a broadcast do, however
    // many each operand has.
    for (std::size_t left = dims - named; left > 0; --left)
      spelling.push_back(kFirstDot + static_cast<int>(left) - 1);
  }
  return spelling;
}

std::size_t OperatorDims::dots(Metas inputs) const {
  std::size_t most = 0;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].find('.') == Letters::npos) continue;
    const std::size_t named = inputs_[i].size() - 1;
    most = std::max(most, spelled(inputs_[i], inputs[i].shape.size(), "an operand").size() - named);
  }
  return most;
}

std::vector<int> OperatorDims::output_spelling(Metas inputs) const {
  const bool has_dots = output_.find('.') != Letters::npos;
  // The '.' is one of the letters, and stands for as many dims as the longest "..." of the
  // operands.
  return spelled(output_, output_.size() + (has_dots ? dots(inputs) - 1 : 0), "a result");
}

Rules::Indices OperatorDims::indices(const std::vector<int>& spelling) const {
  Rules::Indices indices;
  for (const int letter : spelling) {
    const bool is_whole =
        letter < kFirstDot && whole_.find(static_cast<char>(letter)) != std::string::npos;
    indices.push_back(is_whole ? sharding::kBroadcast : letter);
  }
  return indices;
}

std::vector<Rules::Indices> OperatorDims::input_indices(Metas inputs) const {
  std::vector<Rules::Indices> all;
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    all.push_back(indices(spelled(inputs_[i], inputs[i].shape.size(), "an operand")));
  return all;
}

Rules::Indices OperatorDims::output_indices(Metas inputs) const {
  return indices(output_spelling(inputs));
}

Shape OperatorDims::result_shape(Metas inputs) const {
  std::map<int, std::int64_t> extents;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Shape& shape = inputs[i].shape;
    const std::vector<int> spelling = spelled(inputs_[i], shape.size(), "an operand");
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      const auto [known, is_new] = extents.try_emplace(spelling[dim], shape[dim]);
      if (is_new || known->second == shape[dim]) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  name_ + " got operands that do not fit: dim " + std::to_string(dim) + " of the " +
                      "operand " + std::to_string(i + 1) + " has " + std::to_string(shape[dim]) +
                      " elements, and another one of that letter " + std::to_string(known->second),
                  "its dims are \"" + text_ + "\"", "sizes that are equal where the letters are");
    }
  }
  Shape shape;
  for (const int letter : output_spelling(inputs)) {
    const auto found = extents.find(letter);
    if (found == extents.end())
      refuse_dims(name_, text_,
                  "the result has a letter that no operand has: define `result`, too");
    shape.push_back(found->second);
  }
  return shape;
}

}  // namespace dtrun::dtensor
