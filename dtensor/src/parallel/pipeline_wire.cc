#include "parallel/pipeline_wire.h"

#include <algorithm>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/tensor/ops.h"
#include "move/span.h"
#include "move/told_calls.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using MessageKind = PipelineMessage::Kind;

/// Of all messages between stages: their order tells them apart. MPI's smallest bound is 32,767.
constexpr std::uint32_t kTag = 0x7c1;

constexpr std::size_t kMostDims = 8;
/// A form on the wire: dtype, whether a gradient is wanted, the number of dims, the dims.
constexpr std::int64_t kFormNumbers = 3 + static_cast<std::int64_t>(kMostDims);

std::string stage_name(int stage) {
  return "stage " + std::to_string(stage) + " of the pipeline";
}

}  // namespace

void PipelineWire::begin(const std::string& key,
                         const std::vector<std::vector<PipelineAction>>& lists,
                         const PipelineShape& shape, Device device, const Tensor::Site& site) {
  shape_ = shape;
  device_ = device;
  site_ = site;
  // Few shapes of batches are in use; a program that always has others does not fill the memory.
  constexpr std::size_t kMostKeys = 64;
  if (forms_by_key_.size() >= kMostKeys && !forms_by_key_.contains(key)) forms_by_key_.clear();
  forms_ = &forms_by_key_[key];
  channels_.clear();
  handed_on_.clear();
  for (int peer = 0; peer < shape.ranks; ++peer) {
    if (peer != group_.rank()) expect_from(peer, lists[static_cast<std::size_t>(peer)]);
  }
}

void PipelineWire::expect_from(int peer, const std::vector<PipelineAction>& actions) {
  for (const auto& [kind, stage, microbatch] : actions) {
    const bool is_forward = kind == PipelineAction::Kind::forward;
    const int target = is_forward ? stage + 1 : stage - 1;
    if (target < 0 || target >= shape_.stages() || rank_of(target) != group_.rank()) continue;
    channels_[peer].to_come.push_back(
        {is_forward ? MessageKind::activation : MessageKind::gradient, target, microbatch});
  }
}

void PipelineWire::send(const PipelineMessage& message, const Tensor& tensor) {
  if (message.kind == MessageKind::activation) settle_form(message, tensor);
  const int peer = rank_of(message.stage);
  if (peer == group_.rank()) {
    handed_on_[message] = tensor.detach();
    return;
  }
  forget_sent();
  const bool is_output = message.kind == MessageKind::activation;
  const ToldCalls told(is_output ? "a stage's output" : "a stage's gradient", site_);
  sent_.push_back(group_.isend(tensor.local().contiguous(), peer, kTag, {}, site_));
}

void PipelineWire::settle_form(const PipelineMessage& message, const Tensor& tensor) {
  const std::string stage = stage_name(message.stage - 1);
  if (tensor.is_distributed()) {
    throw Error(ErrorCode::kInvalidArgument,
                stage + " gives a distributed tensor, " + tensor.spec().to_string(),
                "plain tensors flow between stages",
                "parallelize() with plain outputs, or to_local() at the end of the stage");
  }
  const Form form{tensor.dtype(), tensor.shape(), tensor.requires_grad()};
  if (form.shape.size() > kMostDims) {
    throw Error(ErrorCode::kInvalidArgument,
                stage + " gives a tensor of " + std::to_string(form.shape.size()) + " dims", "",
                "flatten() to at most " + std::to_string(kMostDims));
  }
  const auto [place, is_new] = forms_->try_emplace({message.stage, message.microbatch}, form);
  if (!is_new && !(place->second == form)) {
    const auto text = [](const Form& of) {
      return std::string(tensors::dtype_short_name(of.dtype)) + tensors::shape_to_string(of.shape) +
             (of.wants_gradient ? ", of which a gradient is wanted" : "");
    };
    throw Error(ErrorCode::kInvalidArgument,
                stage + " gives " + text(form) + "; before, for inputs of the same shape, " +
                    text(place->second),
                "the next stage was told once what comes",
                "a new Pipeline after a change of the model; shapes that depend on shapes alone");
  }
  const int peer = rank_of(message.stage);
  if (!is_new || peer == group_.rank()) return;
  // Before the activation itself, so the receiver's next message from here is the form
  // (post_next()).
  const ToldCalls told("the form of a stage's output", site_);
  sent_.push_back(group_.isend(numbers_of(form), peer, kTag, {}, site_));
}

LocalTensor PipelineWire::numbers_of(const Form& form) const {
  const LocalTensor numbers = tensors::zeros({kFormNumbers}, {DType::i64});
  auto* const values = numbers.data_as<std::int64_t>();
  values[0] = static_cast<std::int64_t>(form.dtype);
  values[1] = form.wants_gradient ? 1 : 0;
  values[2] = static_cast<std::int64_t>(form.shape.size());
  std::copy(form.shape.begin(), form.shape.end(), values + 3);
  return group_.serves(tensors::DeviceType::cpu) ? numbers : numbers.to(device_);
}

PipelineWire::Form PipelineWire::form_from(const LocalTensor& numbers) {
  const std::vector<std::int64_t> values = numbers.to_vector_i64();
  const std::int64_t* const dims = values.data() + 3;
  return {static_cast<DType>(values[0]), Shape(dims, dims + values[2]), values[1] != 0};
}

PipelineWire::Form PipelineWire::hear_form(int peer) const {
  const LocalTensor numbers = numbers_of({});
  const ToldCalls told("the form of a stage's output", site_);
  group_.recv(numbers, peer, kTag, {}, site_);
  return form_from(numbers);
}

Tensor PipelineWire::from_last_rank(const Tensor& tensor) {
  const int last = group_.size() - 1;
  if (last == 0) return tensor;
  const LocalTensor numbers =
      numbers_of(tensor.defined() ? Form{tensor.dtype(), tensor.shape()} : Form{});
  const ToldCalls told("the pipeline's output", site_);
  group_.broadcast(numbers, last, {}, site_);
  const Form form = form_from(numbers);
  const Tensor whole =
      tensor.defined() ? tensor : empty(form.shape, {.dtype = form.dtype, .device = device_});
  group_.broadcast(whole.local(), last, {}, site_);
  return whole;
}

const PipelineWire::Form* PipelineWire::form_of(const PipelineMessage& message) const {
  const int stage = message.kind == MessageKind::activation ? message.stage : message.stage + 1;
  const auto found = forms_->find({stage, message.microbatch});
  return found == forms_->end() ? nullptr : &found->second;
}

void PipelineWire::post_next(Channel& channel, int peer) {
  const PipelineMessage message = channel.to_come.front();
  const Form* form = form_of(message);
  if (form == nullptr)
    form = &forms_->emplace(std::pair(message.stage, message.microbatch), hear_form(peer))
                .first->second;
  channel.to_come.pop_front();
  if (message.kind == MessageKind::gradient && !form->wants_gradient) return;
  const Tensor tensor = empty(form->shape, {.dtype = form->dtype, .device = device_});
  const bool is_output = message.kind == MessageKind::activation;
  const ToldCalls told(is_output ? "a stage's output" : "a stage's gradient", site_);
  channel.posted.emplace(message,
                         Posted{tensor, group_.irecv(tensor.local(), peer, kTag, {}, site_)});
}

void PipelineWire::post_ahead(Channel& channel, int peer) {
  // One message ahead, so that it comes while this stage computes. Not where its form is still to
  // come: post_next() would wait for that.
  if (!channel.to_come.empty() && form_of(channel.to_come.front()) != nullptr)
    post_next(channel, peer);
}

Tensor PipelineWire::receive(const PipelineMessage& message) {
  const bool is_activation = message.kind == MessageKind::activation;
  const int peer = rank_of(is_activation ? message.stage - 1 : message.stage + 1);
  Tensor tensor;
  if (peer == group_.rank()) {
    tensor = std::move(handed_on_.extract(message).mapped());
  } else {
    Channel& channel = channels_[peer];
    while (!channel.posted.contains(message)) post_next(channel, peer);
    const Posted posted = std::move(channel.posted.extract(message).mapped());
    post_ahead(channel, peer);
    const Span span(Span::Kind::wait, "wait for another stage");
    posted.work.wait();
    tensor = posted.tensor;
  }
  if (is_activation && form_of(message)->wants_gradient) tensor.requires_grad_();
  return tensor;
}

void PipelineWire::forget_sent() {
  std::erase_if(sent_, [](const collectives::Work& work) {
    if (!work.is_completed()) return false;
    work.wait();  // throws what went wrong
    return true;
  });
}

void PipelineWire::end() {
  for (const collectives::Work& work : sent_) work.wait();
  sent_.clear();
}

}  // namespace dtrun::dtensor
