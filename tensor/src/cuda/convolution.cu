#include "cuda/convolution.h"

#include "cuda/for_each.h"
#include "cuda/line_layout.h"
#include "element.h"

namespace dtrun::tensors::cuda {
namespace {

/// One dim of an image under a window.
struct WindowDim {
  std::int64_t size, window, places, stride, padding, dilation;

  /// Where the window's element lies; -1 beyond the image.
  DTRUN_BOTH std::int64_t inside(std::int64_t place, std::int64_t element) const {
    const std::int64_t at = place * stride + element * dilation - padding;
    return at < size ? at : -1;
  }
  /// Which place of the window has that element there; -1: none.
  DTRUN_BOTH std::int64_t place_of(std::int64_t at, std::int64_t element) const {
    const std::int64_t start = at + padding - element * dilation;
    if (start < 0) return -1;
    const Division place = divide(start, stride);
    return place.remainder == 0 && place.quotient < places ? place.quotient : -1;
  }
};

/// Index: an element of the columns.
template <typename T>
struct FillColumns {
  T* columns;
  const T* images;
  WindowDim down, across;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const Division line = divide(i, across.places);
    const Division place = divide(line.quotient, down.places);
    const Division row = divide(place.quotient, across.window);
    const Division image = divide(row.quotient, down.window);
    const std::int64_t y = down.inside(place.remainder, image.remainder);
    const std::int64_t x = across.inside(line.remainder, row.remainder);
    columns[i] = y < 0 || x < 0 ? T{} : images[(image.quotient * down.size + y) * across.size + x];
  }
};

/// Index: an element of the images.
template <typename T>
struct AddColumns {
  T* images;
  const T* columns;
  WindowDim down, across;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    const Division line = divide(i, across.size);
    const Division image = divide(line.quotient, down.size);
    T sum{};
    for (std::int64_t y = 0; y < down.window; ++y) {
      const std::int64_t row = down.place_of(image.remainder, y);
      for (std::int64_t x = 0; row >= 0 && x < across.window; ++x) {
        const std::int64_t column = across.place_of(line.remainder, x);
        if (column < 0) continue;
        const std::int64_t window = (image.quotient * down.window + y) * across.window + x;
        sum += columns[(window * down.places + row) * across.places + column];
      }
    }
    images[i] = sum;
  }
};

WindowDim rows_of(const ColumnSizes& sizes) {
  return {sizes.height,
          sizes.window_height,
          sizes.out_height,
          sizes.options.stride.height,
          sizes.options.padding.height,
          sizes.options.dilation.height};
}
WindowDim columns_of(const ColumnSizes& sizes) {
  return {sizes.width,
          sizes.window_width,
          sizes.out_width,
          sizes.options.stride.width,
          sizes.options.padding.width,
          sizes.options.dilation.width};
}

template <typename T>
void fill_columns(const LocalTensor& columns, const LocalTensor& images, const ColumnSizes& sizes) {
  for_each(columns.numel(),
           FillColumns<T>{columns.data_as<T>(), images.data_as<const T>(), rows_of(sizes),
                          columns_of(sizes)},
           current_stream(images.device().index));
}

template <typename T>
void add_columns(const LocalTensor& images, const LocalTensor& columns, const ColumnSizes& sizes) {
  for_each(images.numel(),
           AddColumns<T>{images.data_as<T>(), columns.data_as<const T>(), rows_of(sizes),
                         columns_of(sizes)},
           current_stream(images.device().index));
}

}  // namespace

void images_to_columns(const LocalTensor& columns, const LocalTensor& images,
                       const ColumnSizes& sizes) {
  // All bits 0 is 0.
  const std::size_t bytes = item_size(images.dtype());
  const auto fill = bytes == 8   ? &fill_columns<std::uint64_t>
                    : bytes == 4 ? &fill_columns<std::uint32_t>
                                 : &fill_columns<std::uint16_t>;
  fill(columns, images, sizes);
}

void columns_to_images(const LocalTensor& images, const LocalTensor& columns,
                       const ColumnSizes& sizes) {
  const auto add = images.dtype() == DType::f64 ? &add_columns<double> : &add_columns<float>;
  add(images, columns, sizes);
}

}  // namespace dtrun::tensors::cuda
