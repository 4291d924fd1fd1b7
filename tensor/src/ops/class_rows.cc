#include "dtrun/tensor/ops/class_rows.h"

#include <fmt/core.h>

#include <cstring>

#include "cuda/index.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/place_error.h"
#include "ops/class_of_row.h"
#include "require.h"

namespace dtrun::tensors {

void require_class(std::string_view name, std::int64_t chosen, std::int64_t row,
                   std::int64_t classes, std::int64_t rows) {
  if (chosen >= 0 && chosen < classes) return;
  throw PlaceError(row, {rows},
                   {.before = fmt::format("{}: row ", name),
                    .after = fmt::format(" has class {}", chosen),
                    .why = fmt::format("there are {} classes", classes),
                    .remedy = "the ignored class is an argument"});
}

namespace {

void require_targets(std::string_view name, const LocalTensor& a, int dims,
                     const LocalTensor& target) {
  require_one_device(name, a, target);
  if (a.dim() == dims && target.dim() == 1 && target.dtype() == DType::i64 &&
      target.size(0) == a.size(0)) {
    return;
  }
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    fmt::format("{} of {} and classes {} {}", name, shape_to_string(a.shape()),
                                dtype_name(target.dtype()), shape_to_string(target.shape())),
                    "the classes are int64 [rows]", "reshape() them, or to(DType::i64)");
}

/// move(row, class) for each row that counts.
template <typename Move>
void for_each_class(const LocalTensor& target, std::int64_t classes, std::int64_t ignored,
                    Move&& move) {
  const LocalTensor chosen = target.contiguous();
  const auto* const numbers = chosen.data_as<const std::int64_t>();
  for (std::int64_t row = 0; row < chosen.size(0); ++row) {
    if (numbers[row] == ignored) continue;
    require_class("class targets", numbers[row], row, classes, chosen.size(0));
    move(row, numbers[row]);
  }
}

}  // namespace

LocalTensor device_classes(std::string_view name, const LocalTensor& target, std::int64_t classes,
                           std::int64_t ignored) {
  const LocalTensor chosen = target.contiguous();
  const std::int64_t row = cuda::first_outside(chosen, {0, classes, ignored});
  if (row >= 0)
    require_class(name, chosen.narrow(0, row, 1).to_vector_i64()[0], row, classes, chosen.size(0));
  return chosen;
}

LocalTensor pick_classes(const LocalTensor& a, const LocalTensor& target, std::int64_t ignored,
                         ClassCut cut) {
  require_targets("pick_classes", a, 2, target);
  LocalTensor out = zeros({a.size(0)}, {a.dtype(), a.device()});
  const std::int64_t classes = cut.classes < 0 ? a.size(1) : cut.classes;
  if (!a.device().is_cpu()) {
    const LocalTensor chosen = device_classes("class targets", target, classes, ignored);
    cuda::pick_columns(out, a, chosen, ignored, cut.first);
    return out;
  }
  const auto size = static_cast<std::int64_t>(item_size(a.dtype()));
  const char* const from = static_cast<const char*>(a.data());
  char* const to = static_cast<char*>(out.data());
  for_each_class(target, classes, ignored, [&](std::int64_t row, std::int64_t chosen) {
    const std::int64_t column = chosen - cut.first;
    if (column < 0 || column >= a.size(1)) return;
    const std::int64_t place = row * a.strides()[0] + column * a.strides()[1];
    std::memcpy(to + row * size, from + place * size, static_cast<std::size_t>(size));
  });
  return out;
}

LocalTensor place_classes(const LocalTensor& values, const LocalTensor& target,
                          std::int64_t classes, std::int64_t ignored) {
  require_targets("place_classes", values, 1, target);
  LocalTensor out = zeros({values.size(0), classes}, {values.dtype(), values.device()});
  if (!values.device().is_cpu()) {
    const LocalTensor chosen = device_classes("class targets", target, classes, ignored);
    cuda::place_columns(out, values, chosen, ignored);
    return out;
  }
  const auto size = static_cast<std::int64_t>(item_size(values.dtype()));
  const char* const from = static_cast<const char*>(values.data());
  char* const to = static_cast<char*>(out.data());
  for_each_class(target, classes, ignored, [&](std::int64_t row, std::int64_t chosen) {
    std::memcpy(to + (row * classes + chosen) * size, from + row * values.strides()[0] * size,
                static_cast<std::size_t>(size));
  });
  return out;
}

}  // namespace dtrun::tensors
