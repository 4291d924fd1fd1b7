// Three steps of the small model on one rank, with clipping, and how ranks are compared with them.
#pragma once

#include "dtensor/parallel/small_models.h"
#include "dtrun/dtensor/optim/adam.h"
#include "dtrun/dtensor/optim/clip_grad.h"
#include "dtrun/dtensor/parallel/fully_shard.h"
#include "support/rank_threads.h"

namespace dtrun::dtensor {

inline optim::AdamW made_optimizer(const nn::Module& model) {
  return optim::AdamW(model.parameters(), {.lr = 0.05, .weight_decay = 0.1});
}

inline void take_step(const nn::Module& model, optim::AdamW& optimizer) {
  optim::clip_grad_norm_(model.parameters(), 0.5);
  optimizer.step();
}

inline void expect_weights(const nn::Module& found, const nn::Module& expected,
                           double tolerance = 1e-10) {
  const auto parameters = found.named_parameters(), others = expected.named_parameters();
  ASSERT_EQ(parameters.size(), others.size());
  for (std::size_t i = 0; i < parameters.size(); ++i)
    expect_near(parameters[i].second, others[i].second, parameters[i].first, tolerance);
}

/// Three steps of one rank.
inline std::shared_ptr<Reader> trained_on_one_rank() {
  const auto model = made_reader();
  optim::AdamW optimizer = made_optimizer(*model);
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    loss_of(*model, 0, 12).backward();
    take_step(*model, optimizer);
  }
  return model;
}

inline const Reader& trained() {
  static const auto kModel = trained_on_one_rank();
  return *kModel;
}

/// The same on these ranks, each with its part of the samples.
inline void expect_trains_as_one_rank(Reader& model, const ProcessGroup& samples) {
  optim::AdamW optimizer = made_optimizer(model);
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    part_of_loss(model, samples).backward();
    take_step(model, optimizer);
  }
  expect_gradients(model, trained(), 1e-10);
  expect_weights(model, trained());
}

/// Backwards of two ranks add up, also where their forwards ran before.
inline void expect_gradients_add_up(const FullyShardOptions& options) {
  const auto whole = made_reader();
  loss_of(*whole, 0, 12).backward();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2}, {"dp"});
    const auto model = made_reader();
    fully_shard(*model, mesh, options);
    for (const std::int64_t first : {0, 6})
      (loss_of(*model, first + group.rank() * 3, 3) * 0.5).backward();
    expect_gradients(*model, *whole);
    // Two forwards, then their backwards.
    model->zero_grad();
    const Tensor one = loss_of(*model, group.rank() * 3, 3) * 0.5;
    const Tensor other = loss_of(*model, 6 + group.rank() * 3, 3) * 0.5;
    one.backward();
    other.backward();
    expect_gradients(*model, *whole);
  });
}

}  // namespace dtrun::dtensor
