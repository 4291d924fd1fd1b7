// What PyTorch 2.11's str(tensor) prints with default options. The rules are PyTorch's, quirks
// included: one format and width for all elements, chosen from those that will be shown.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "dtrun/tensor/ops.h"

namespace dtrun::tensors {
namespace {

constexpr std::int64_t kThreshold = 1000;  ///< more elements than this are summarised
constexpr std::int64_t kEdgeItems = 3;
constexpr std::size_t kLineWidth = 80;
constexpr std::string_view kPrefix = "tensor(";

enum class Extent { whole, edges };

/// The elements along dim 0 that are shown, in two runs; the second is empty where all are.
std::vector<LocalTensor> shown_runs(const LocalTensor& tensor, Extent extent) {
  const std::int64_t size = tensor.size(0);
  if (extent == Extent::whole || size <= 2 * kEdgeItems) return {tensor};
  return {tensor.slice(0, 0, kEdgeItems), tensor.slice(0, size - kEdgeItems, size)};
}

/// All elements that are shown.
LocalTensor shown_elements(const LocalTensor& tensor, Extent extent) {
  if (extent == Extent::whole || tensor.dim() == 0) return tensor.reshape({-1});
  std::vector<LocalTensor> pieces;
  for (const LocalTensor& run : shown_runs(tensor, extent)) {
    if (tensor.dim() == 1) {
      pieces.push_back(run);
      continue;
    }
    for (std::int64_t i = 0; i < run.size(0); ++i) {
      pieces.push_back(shown_elements(run[i], extent));
    }
  }
  return cat(pieces);
}

/// How every element of one tensor is written.
class Formatter {
 public:
  explicit Formatter(const LocalTensor& elements) {
    if (is_floating_point(elements.dtype())) {
      choose_floating_mode(elements.to_vector());
    } else {
      mode_ = elements.dtype() == DType::boolean ? Mode::boolean : Mode::integer;
      for (const std::string& text : unpadded(elements)) width_ = std::max(width_, text.size());
    }
  }

  std::size_t width() const { return width_; }

  /// Of a tensor of one dim.
  std::vector<std::string> format(const LocalTensor& elements) const {
    std::vector<std::string> texts = unpadded(elements);
    for (std::string& text : texts) {
      if (text.size() < width_) text.insert(0, width_ - text.size(), ' ');
    }
    return texts;
  }

 private:
  enum class Mode { boolean, integer, whole, fixed, scientific };

  void choose_floating_mode(const std::vector<double>& values) {
    // Zeros, infinities and NaN have no say, not even in the width.
    std::vector<double> deciding;
    std::copy_if(values.begin(), values.end(), std::back_inserter(deciding),
                 [](double value) { return std::isfinite(value) && value != 0; });
    mode_ = Mode::whole;
    if (deciding.empty()) return;
    double smallest = std::abs(deciding.front());
    double largest = smallest;
    for (const double value : deciding) {
      smallest = std::min(smallest, std::abs(value));
      largest = std::max(largest, std::abs(value));
      if (value != std::ceil(value)) mode_ = Mode::fixed;
    }
    if (largest / smallest > 1000 || largest > 1e8 || smallest < 1e-4) mode_ = Mode::scientific;
    for (const double value : deciding) width_ = std::max(width_, unpadded(value).size());
  }

  std::string unpadded(double value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    if (mode_ == Mode::scientific) return fmt::format("{:.4e}", value);
    if (mode_ == Mode::whole) return fmt::format("{:.0f}.", value);
    return fmt::format("{:.4f}", value);
  }

  std::vector<std::string> unpadded(const LocalTensor& elements) const {
    std::vector<std::string> texts;
    if (is_floating_point(elements.dtype())) {
      for (const double value : elements.to_vector()) texts.push_back(unpadded(value));
    } else {
      for (const std::int64_t value : elements.to_vector_i64()) {
        texts.push_back(mode_ == Mode::boolean ? (value != 0 ? "True" : "False")
                                               : std::to_string(value));
      }
    }
    return texts;
  }

  Mode mode_ = Mode::integer;
  std::size_t width_ = 1;
};

/// Nested brackets, to stand after `indent` characters on their line.
class ElementPrinter {
 public:
  ElementPrinter(const LocalTensor& tensor, Extent extent)
      : formatter_(shown_elements(tensor, extent)), extent_(extent) {}

  std::string print(const LocalTensor& tensor, std::size_t indent) const {
    if (tensor.dim() == 0) return formatter_.format(tensor.unsqueeze(0)).front();
    if (tensor.dim() == 1) return print_row(tensor, indent);
    const std::string separator = "," +
                                  std::string(static_cast<std::size_t>(tensor.dim() - 1), '\n') +
                                  std::string(indent + 1, ' ');
    std::string text = "[";
    for (const LocalTensor& run : shown_runs(tensor, extent_)) {
      if (text.size() > 1) text += separator + "...";
      for (std::int64_t i = 0; i < run.size(0); ++i) {
        if (text.size() > 1) text += separator;
        text += print(run[i], indent + 1);
      }
    }
    return text + "]";
  }

 private:
  std::string print_row(const LocalTensor& row, std::size_t indent) const {
    const std::size_t room = kLineWidth > indent ? kLineWidth - indent : 0;
    const std::size_t per_line = std::max<std::size_t>(1, room / (formatter_.width() + 2));
    std::vector<std::string> items;
    for (const LocalTensor& run : shown_runs(row, extent_)) {
      if (!items.empty()) items.push_back(" ...");
      for (std::string& item : formatter_.format(run)) items.push_back(std::move(item));
    }
    std::string text = "[";
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i != 0) text += i % per_line == 0 ? ",\n" + std::string(indent + 1, ' ') : ", ";
      text += items[i];
    }
    return text + "]";
  }

  Formatter formatter_;
  Extent extent_;
};

/// PyTorch's names for what cannot be seen from the elements.
std::vector<std::string> suffixes(const LocalTensor& tensor) {
  std::vector<std::string> texts;
  if (!tensor.device().is_cpu()) {
    texts.push_back(fmt::format("device='{}'", tensor.device().to_string()));
  }
  const bool is_empty = tensor.numel() == 0;
  if (is_empty && tensor.dim() != 1) {
    const std::string sizes = shape_to_string(tensor.shape());
    texts.push_back("size=(" + sizes.substr(1, sizes.size() - 2) + ")");
  }
  const DType dtype = tensor.dtype();
  const bool is_evident =
      dtype == DType::f32 || (!is_empty && (dtype == DType::i64 || dtype == DType::boolean));
  if (!is_evident) texts.push_back(fmt::format("dtype=torch.{}", dtype_name(dtype)));
  return texts;
}

}  // namespace

std::string LocalTensor::to_string() const {
  std::string text(kPrefix);
  if (numel() == 0) {
    text += "[]";
  } else {
    const Extent extent = numel() > kThreshold ? Extent::edges : Extent::whole;
    // Of a large tensor on a device only the elements that are shown come to the host.
    const LocalTensor shown = extent == Extent::whole ? to(kCpu) : *this;
    text += ElementPrinter(shown, extent).print(shown, kPrefix.size());
  }
  // As PyTorch counts it: one more than the line has, two more on the first line.
  const std::size_t newline = text.rfind('\n');
  std::size_t line = newline == std::string::npos ? text.size() + 2 : text.size() - newline + 1;
  for (const std::string& suffix : suffixes(*this)) {
    if (line + suffix.size() + 2 > kLineWidth) {
      text += ",\n" + std::string(kPrefix.size(), ' ') + suffix;
      line = kPrefix.size() + suffix.size();
    } else {
      text += ", " + suffix;
      line += suffix.size() + 2;
    }
  }
  return text + ")";
}

}  // namespace dtrun::tensors
