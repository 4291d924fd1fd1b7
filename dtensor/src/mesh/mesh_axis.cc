#include "mesh/mesh_axis.h"

#include <algorithm>

namespace dtrun::dtensor {

MeshAxis MeshAxis::joined(const std::vector<MeshAxis>& axes) {
  MeshAxis result;
  std::vector<Stretch>& all = result.stretches_;
  for (const MeshAxis& axis : axes) {
    for (const Stretch& stretch : axis.stretches_) {
      if (stretch.size == 1 && !all.empty()) continue;
      if (!all.empty() &&
          (all.back().size == 1 || all.back().stride == stretch.size * stretch.stride)) {
        all.back() = {all.back().size * stretch.size, stretch.stride};
      } else {
        all.push_back(stretch);
      }
    }
  }
  return result;
}

int MeshAxis::size() const {
  int size = 1;
  for (const Stretch& stretch : stretches_) size *= stretch.size;
  return size;
}

std::vector<int> MeshAxis::places() const {
  std::vector<int> places{0};
  for (const Stretch& stretch : stretches_) {
    std::vector<int> finer;
    for (const int place : places) {
      for (int i = 0; i < stretch.size; ++i) finer.push_back(place + i * stretch.stride);
    }
    places = std::move(finer);
  }
  return places;
}

int MeshAxis::part_of(int place) const {
  int part = 0;
  for (const Stretch& stretch : stretches_) {
    part += place / stretch.stride % stretch.size * stretch.stride;
  }
  return part;
}

std::optional<std::vector<MeshAxis>> MeshAxis::split(const std::vector<int>& sizes) const {
  std::vector<MeshAxis> axes;  // innermost first
  std::vector<Stretch> left = stretches_;
  for (std::size_t a = sizes.size(); a-- > 0;) {
    MeshAxis axis;
    int wanted = sizes[a];
    do {
      Stretch& inner = left.back();
      const int taken = std::min(wanted, inner.size);
      if (taken < 1 || inner.size % taken != 0 || wanted % taken != 0) return std::nullopt;
      axis.stretches_.insert(axis.stretches_.begin(), {taken, inner.stride});
      inner = {inner.size / taken, inner.stride * taken};
      wanted /= taken;
      if (inner.size == 1 && left.size() > 1) left.pop_back();
    } while (wanted > 1 && left.back().size > 1);
    if (wanted > 1) return std::nullopt;
    axes.insert(axes.begin(), std::move(axis));
  }
  if (left.size() > 1 || left.back().size > 1) return std::nullopt;
  return axes;
}

std::string MeshAxis::stride_text() const {
  if (stretches_.size() == 1) return std::to_string(stretches_.front().stride);
  std::string text;
  for (const Stretch& stretch : stretches_) {
    text += (text.empty() ? "(" : ", ") + std::to_string(stretch.stride);
  }
  return text + ")";
}

std::vector<int> places_of(const std::vector<MeshAxis>& axes) {
  std::vector<int> places{0};
  for (const MeshAxis& axis : axes) {
    const std::vector<int> steps = axis.places();
    std::vector<int> finer;
    for (const int place : places) {
      for (const int step : steps) finer.push_back(place + step);
    }
    places = std::move(finer);
  }
  return places;
}

std::vector<MeshAxis> axes_of(const std::vector<int>& shape) {
  std::vector<MeshAxis> axes;
  int stride = 1;
  for (std::size_t a = shape.size(); a-- > 0;) {
    axes.emplace_back(shape[a], stride);
    stride *= shape[a];
  }
  std::ranges::reverse(axes);
  return axes;
}

}  // namespace dtrun::dtensor
