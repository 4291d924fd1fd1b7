// OperatorDims: "bij,jk->bik" read: the letters of each operand's and the result's dims. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dispatch/rules.h"

namespace dtrun::dtensor {

class OperatorDims {
 public:
  /// @param whole letters that may not be cut @throws Error kInvalidArgument
  OperatorDims(const std::string& name, const std::string& dims, const std::string& whole);

  std::size_t inputs() const { return inputs_.size(); }
  /// Why no rule can have that placement of a tensor, whatever its operands are; empty: one can.
  /// @param tensor an operand's number, or inputs() for the result
  std::string obstacle(std::size_t tensor, const Placement& placement) const;
  /// The result's, of each letter's extent. @throws Error kInvalidArgument where operands do not
  /// fit, or the result has a letter that none of them has
  tensors::Shape result_shape(Metas inputs) const;
  /// What the rules are told by, for operands of those shapes. @throws Error kInvalidArgument
  std::vector<Rules::Indices> input_indices(Metas inputs) const;
  Rules::Indices output_indices(Metas inputs) const;

 private:
  /// Of one tensor: letters, and '.' for the dims that "..." stands for.
  using Letters = std::string;
  Letters read(const std::string& text) const;
  /// One letter for each dim: those of "..." are numbered from the right, from 128 on.
  std::vector<int> spelled(const Letters& letters, std::size_t dims, const char* whose) const;
  /// How many dims "..." stands for; 0 where no operand has it.
  std::size_t dots(Metas inputs) const;
  Rules::Indices indices(const std::vector<int>& spelling) const;
  std::vector<int> output_spelling(Metas inputs) const;

  std::string name_;
  std::string text_;
  std::string whole_;
  std::vector<Letters> inputs_;
  Letters output_;
};

}  // namespace dtrun::dtensor
