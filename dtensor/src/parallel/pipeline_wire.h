// PipelineWire: what goes from stage to stage. Receives are asked for in the order in which the
// other rank sends, which both know from the schedule: no backend has to match messages.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/parallel/pipeline_schedule.h"

namespace dtrun::dtensor {

/// An activation on its way to a stage, or the gradient of what the stage has given.
struct PipelineMessage {
  enum class Kind : unsigned char { activation, gradient };
  Kind kind;
  int stage;  ///< that it goes to
  int microbatch;
  friend auto operator<=>(const PipelineMessage&, const PipelineMessage&) = default;
};

class PipelineWire {
 public:
  explicit PipelineWire(ProcessGroup group) : group_(std::move(group)) {}

  /// @param lists what each rank does
  /// @param key equal keys mean activations of the same shapes, on all ranks: these are told once
  /// @param device of what is received
  void begin(const std::string& key, const std::vector<std::vector<PipelineAction>>& lists,
             const PipelineShape& shape, Device device, const Tensor::Site& site);
  /// Returns at once. @throws Error kInvalidArgument for an activation that is distributed, has
  /// more dims than can be told, or is not as it was under the same key
  void send(const PipelineMessage& message, const Tensor& tensor);
  /// Waits. An activation of which a gradient is wanted is a leaf.
  Tensor receive(const PipelineMessage& message);
  /// Waits for what was sent.
  void end();
  /// The last rank's tensor, on all ranks; the others may give none.
  Tensor from_last_rank(const Tensor& tensor);

 private:
  /// What a receiver has to know.
  struct Form {
    DType dtype = DType::f32;
    Shape shape;
    bool wants_gradient = false;
    friend bool operator==(const Form&, const Form&) = default;
  };
  struct Posted {
    Tensor tensor;
    collectives::Work work;
  };
  /// From one rank.
  struct Channel {
    std::deque<PipelineMessage> to_come;  ///< not yet asked for
    std::map<PipelineMessage, Posted> posted;
  };

  int rank_of(int stage) const { return stage % shape_.ranks; }
  /// What the other rank will send here.
  void expect_from(int peer, const std::vector<PipelineAction>& actions);
  /// Of an activation as it goes out: told to the receiver, if it does not know it.
  void settle_form(const PipelineMessage& message, const Tensor& tensor);
  /// Null: not known yet.
  const Form* form_of(const PipelineMessage& message) const;
  Form hear_form(int peer) const;
  LocalTensor numbers_of(const Form& form) const;
  static Form form_from(const LocalTensor& numbers);
  /// Asks for the channel's next message.
  void post_next(Channel& channel, int peer);
  /// Asks for it before it is needed, where its form is known.
  void post_ahead(Channel& channel, int peer);
  void forget_sent();

  const ProcessGroup group_;
  Device device_ = tensors::kCpu;
  PipelineShape shape_;
  Tensor::Site site_;
  std::map<int, Channel> channels_;              ///< by the other rank
  std::map<PipelineMessage, Tensor> handed_on_;  ///< between stages of this rank
  std::vector<collectives::Work> sent_;
  /// Activations, those that this rank sends and those that it gets; a gradient has its
  /// activation's form.
  std::map<std::string, std::map<std::pair<int, int>, Form>> forms_by_key_;
  std::map<std::pair<int, int>, Form>* forms_ = nullptr;
};

}  // namespace dtrun::dtensor
