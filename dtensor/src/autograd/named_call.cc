#include "autograd/named_call.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "autograd/call.h"
#include "autograd/call_text.h"
#include "dtrun/base/user_frame.h"
#include "layout/place_in_whole.h"
#include "move/argument_error.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;

constinit thread_local int NamedCallScope::depth_ = 0;

namespace {

/// Of a list.
constexpr std::size_t kMostTold = 4;

std::string described_list(std::span<const Tensor> tensors) {
  std::string text;
  for (const Tensor& tensor : tensors.first(std::min(tensors.size(), kMostTold)))
    text += (text.empty() ? "" : ", ") + (tensor.defined() ? tensor_text(tensor) : "undefined");
  if (tensors.size() > kMostTold)
    text += " and " + std::to_string(tensors.size() - kMostTold) + " more";
  return text.empty() ? "none" : text;
}

/// "linear of input f32[2, 3] and weight f32[4, 3]". A lone argument needs no name; what is left
/// out is not told.
std::string described_call(std::string_view op, CallArguments arguments) {
  std::vector<const CallArgument*> told;
  for (const CallArgument& argument : arguments) {
    const bool is_left_out = argument.tensors().size() == 1 && !argument.tensors()[0].defined() &&
                             !argument.is_missing();
    if (!is_left_out) told.push_back(&argument);
  }
  std::string text(op);
  for (std::size_t i = 0; i < told.size(); ++i) {
    text += i == 0 ? " of " : i + 1 == told.size() ? " and " : ", ";
    if (told.size() > 1 && *told[i]->name() != '\0') text += std::string(told[i]->name()) + " ";
    text += described_list(told[i]->tensors());
  }
  return text;
}

bool names(std::string_view summary, std::string_view op) {
  if (!summary.starts_with(op)) return false;
  const std::string_view rest = summary.substr(op.size());
  return rest.empty() || (std::isalnum(static_cast<unsigned char>(rest[0])) == 0 && rest[0] != '_');
}

/// How large the tensor is, and how it lies.
bool is_told(std::string_view text, const Tensor& tensor) {
  if (!tensor.defined()) return true;
  return text.find(tensor.is_distributed()
                       ? tensor.spec().to_string()
                       : tensors::shape_to_string(tensor.shape())) != std::string_view::npos;
}

std::string joined(const std::string& first, const char* between, const std::string& second) {
  return first.empty() || second.empty() ? first + second : first + between + second;
}

/// Adds to another rank's error in which operator this rank waited.
void tell_place(std::string_view op, const Error& error) {
  constexpr std::string_view kWords = "this rank was in ";
  const bool is_here = error.why().find(kWords) != std::string::npos;
  const std::string frame = is_here ? "" : base::user_frame();
  if (frame.empty()) throw;
  throw Error(error.code(), error.summary(),
              joined(error.why(), "; ", std::string(kWords) + std::string(op) + " at " + frame),
              error.remedy());
}

/// Those of the operator that it came from, whose operands have to be told then, too.
bool numbers_arguments(const Error& error) {
  return dynamic_cast<const ArgumentError*>(&error) != nullptr;
}

/// Errors of failed peers and of differing calls are complete.
void pass_on_others(std::string_view op, const Error& error) {
  if (NamedCallScope::stands() && !numbers_arguments(error)) throw;
  if (error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kPeerFailed)
    tell_place(op, error);
  if (error.code() != ErrorCode::kInvalidArgument) throw;
}

}  // namespace

void tell_call(std::string_view op, std::span<const Tensor* const> inputs, const Error& error) {
  pass_on_others(op, error);
  const auto is_known = [&](const Tensor* input) { return is_told(error.what(), *input); };
  if (names(error.summary(), op) && std::ranges::all_of(inputs, is_known)) throw;
  std::string call;
  for (const Tensor* const input : inputs)
    call += (call.empty() ? "in " + std::string(op) + " of " : " and ") + tensor_text(*input);
  throw Error(error.code(), error.summary(), joined(error.why(), "; ", call), error.remedy());
}

void tell_place_in_whole(std::span<const Spec> inputs, int list, const tensors::PlaceError& error) {
  const Spec input = list < 0 ? Spec() : inputs[static_cast<std::size_t>(list)];
  if (!input) throw;
  const Box& part = input.local_box();
  if (part.shape == input.shape() || tensors::numel(part.shape) != tensors::numel(error.shape()))
    throw;
  throw error.in_whole(place_in_whole(error.place(), part, input.shape()), input.shape());
}

void tell_named_call(std::string_view op, CallArguments arguments, const Error& error) {
  pass_on_others(op, error);
  const bool is_named = names(error.summary(), op);
  const bool is_whole = std::ranges::all_of(arguments, [&](const CallArgument& argument) {
    return std::ranges::all_of(argument.tensors(),
                               [&](const Tensor& tensor) { return is_told(error.what(), tensor); });
  });
  if (is_named && is_whole) throw;
  if (!is_named && arguments.empty())
    throw Error(error.code(), joined(std::string(op), ": ", error.summary()), error.why(),
                error.remedy());
  const std::string call = described_call(op, arguments);
  if (is_named)
    throw Error(error.code(), error.summary(), joined(error.why(), "; ", "in " + call),
                error.remedy());
  throw Error(error.code(), call, joined(error.summary(), ": ", error.why()), error.remedy());
}

void refuse_missing(std::string_view op, const CallArgument& argument) {
  refuse_undefined(op, "its " + std::string(argument.name()));
}

}  // namespace dtrun::dtensor
