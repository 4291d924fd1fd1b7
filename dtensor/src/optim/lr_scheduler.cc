#include "dtrun/dtensor/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "dtrun/base/error.h"

namespace dtrun::dtensor::optim {
namespace {

std::int64_t positive(std::string_view what, std::int64_t steps) {
  if (steps >= 1) return steps;
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    std::string(what) + " of " + std::to_string(steps), "it is at least 1",
                    "a number from 1");
}

/// From 1 to 0 while `part` goes from 0 to 1.
double half_cosine(double part) {
  return (1 + std::cos(std::numbers::pi * part)) / 2;
}

double as_double(std::int64_t steps) {
  return static_cast<double>(steps);
}

}  // namespace

LRScheduler::LRScheduler(Optimizer& optimizer, Rate rate)
    : optimizer_(optimizer), rate_(std::move(rate)) {
  for (std::size_t group = 0; group < optimizer.groups(); ++group)
    bases_.push_back(optimizer.lr(group));
  apply();
}

void LRScheduler::step() {
  set_last_epoch(last_epoch_ + 1);
}

void LRScheduler::set_last_epoch(std::int64_t step) {
  if (step < 0) {
    throw base::Error(base::ErrorCode::kInvalidArgument, "step " + std::to_string(step),
                      "the first one is 0", "a step from 0");
  }
  last_epoch_ = step;
  apply();
}

std::vector<double> LRScheduler::get_last_lr() const {
  std::vector<double> rates;
  for (const double base : bases_) rates.push_back(rate_(last_epoch_, base));
  return rates;
}

void LRScheduler::apply() {
  const std::vector<double> rates = get_last_lr();
  for (std::size_t group = 0; group < rates.size(); ++group) optimizer_.set_lr(rates[group], group);
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::function<double(std::int64_t step)> factor)
    : LRScheduler(optimizer, [factor = std::move(factor)](std::int64_t step, double base) {
        return base * factor(step);
      }) {}

StepLR::StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma)
    : LRScheduler(optimizer, [size = positive("a step_size", step_size), gamma](std::int64_t step,
                                                                                double base) {
        return base * std::pow(gamma, as_double(step / size));
      }) {}

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<std::int64_t> milestones, double gamma)
    : LRScheduler(
          optimizer, [milestones = std::move(milestones), gamma](std::int64_t step, double base) {
            const auto reached =
                std::ranges::count_if(milestones, [&](std::int64_t at) { return at <= step; });
            return base * std::pow(gamma, as_double(reached));
          }) {}

ConstantLR::ConstantLR(Optimizer& optimizer, double factor, std::int64_t total_iters)
    : LRScheduler(optimizer, [factor, end = positive("total_iters", total_iters)](std::int64_t step,
                                                                                  double base) {
        return step < end ? base * factor : base;
      }) {}

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor,
                   std::int64_t total_iters)
    : LRScheduler(optimizer, [start_factor, end_factor, end = positive("total_iters", total_iters)](
                                 std::int64_t step, double base) {
        const double part = std::min(1.0, as_double(step) / as_double(end));
        return base * (start_factor + (end_factor - start_factor) * part);
      }) {}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma)
    : LRScheduler(optimizer, [gamma](std::int64_t step, double base) {
        return base * std::pow(gamma, as_double(step));
      }) {}

PolynomialLR::PolynomialLR(Optimizer& optimizer, std::int64_t total_iters, double power)
    : LRScheduler(optimizer, [end = positive("total_iters", total_iters), power](std::int64_t step,
                                                                                 double base) {
        return base * std::pow(std::max(0.0, 1 - as_double(step) / as_double(end)), power);
      }) {}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, std::int64_t t_max, double eta_min)
    : LRScheduler(
          optimizer, [end = positive("a t_max", t_max), eta_min](std::int64_t step, double base) {
            return eta_min + (base - eta_min) * half_cosine(as_double(step) / as_double(end));
          }) {}

WarmupCosineLR::WarmupCosineLR(Optimizer& optimizer, std::int64_t warmup, std::int64_t total,
                               double min_ratio)
    : LRScheduler(optimizer, [warmup, min_ratio,
                              steps = positive("a total beyond the warmup", total - warmup)](
                                 std::int64_t step, double base) {
        if (step < warmup) return base * as_double(step + 1) / as_double(warmup);
        const double part = std::min(1.0, as_double(step - warmup) / as_double(steps));
        return base * (min_ratio + (1 - min_ratio) * half_cosine(part));
      }) {}

}  // namespace dtrun::dtensor::optim
