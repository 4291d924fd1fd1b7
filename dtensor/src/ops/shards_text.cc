// Each rank's elements, in the grid of the mesh.
#include <algorithm>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/visualize_sharding.h"
#include "dtrun/tensor/ops.h"
#include "move/cause.h"
#include "ops/whole.h"

namespace dtrun::dtensor {
namespace {

using Lines = std::vector<std::string>;

/// Without "tensor(" and what stands after the elements.
Lines lines_of(const LocalTensor& part) {
  constexpr std::string_view kBefore = "tensor(";
  std::string text = part.to_string().substr(kBefore.size());
  const std::size_t end = part.dim() == 0 ? text.find_first_of(",)") : text.rfind(']') + 1;
  text.resize(end);
  Lines lines;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t stop = std::min(text.find('\n', start), text.size());
    lines.push_back(text.substr(start, stop - start));
    const bool has_margin = !lines.back().empty() && start > 0;
    if (has_margin) lines.back().erase(0, kBefore.size());
    start = stop + 1;
  }
  return lines;
}

LocalTensor part_at(const LocalTensor& whole, const Tensor& x, int rank) {
  const DeviceMesh mesh = x.device_mesh();
  const Box box = local_box(x.shape(), mesh.shape(), mesh.coordinate_of(rank), x.spec().layout());
  LocalTensor part = whole;
  for (std::size_t d = 0; d < box.shape.size(); ++d) {
    part = part.narrow(static_cast<int>(d), box.offsets[d], box.shape[d]);
  }
  return part;
}

std::string repeated(const char* letter, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += letter;
  return text;
}

/// The cells of some ranks, rows of `columns`.
class CellGrid {
 public:
  CellGrid(std::vector<Lines> cells, std::vector<int> ranks, std::size_t columns)
      : cells_(std::move(cells)), ranks_(std::move(ranks)), columns_(columns) {
    for (const Lines& cell : cells_) {
      for (const std::string& line : cell) width_ = std::max(width_, line.size());
    }
    width_ = std::max<std::size_t>(width_ + 2, 10);  // "─ rank 10 "
  }

  std::string text() const {
    std::string all;
    const std::size_t rows = cells_.size() / columns_;
    for (std::size_t row = 0; row < rows; ++row) {
      all += border(row, row == 0 ? "┌" : "├", row == 0 ? "┬" : "┼", row == 0 ? "┐" : "┤");
      for (std::size_t line = 0; line < height_of(row); ++line) all += text_line(row, line);
    }
    return all + border(rows, "└", "┴", "┘");
  }

 private:
  std::size_t height_of(std::size_t row) const {
    std::size_t height = 0;
    for (std::size_t column = 0; column < columns_; ++column) {
      height = std::max(height, cells_[row * columns_ + column].size());
    }
    return height;
  }

  /// Above the row, with its ranks in it.
  std::string border(std::size_t row, const char* left, const char* middle,
                     const char* right) const {
    std::string line = left;
    for (std::size_t column = 0; column < columns_; ++column) {
      const std::size_t cell = row * columns_ + column;
      const std::string rank =
          cell < ranks_.size() ? " rank " + std::to_string(ranks_[cell]) + " " : "";
      line += (column == 0 ? "" : middle) + repeated("─", rank.empty() ? 0 : 1) + rank +
              repeated("─", width_ - rank.size() - (rank.empty() ? 0 : 1));
    }
    return line + right + "\n";
  }

  std::string text_line(std::size_t row, std::size_t line) const {
    std::string text = "│";
    for (std::size_t column = 0; column < columns_; ++column) {
      const Lines& cell = cells_[row * columns_ + column];
      std::string words = " " + (line < cell.size() ? cell[line] : "");
      words.resize(width_, ' ');
      text += words + "│";
    }
    return text + "\n";
  }

  const std::vector<Lines> cells_;
  const std::vector<int> ranks_;
  const std::size_t columns_;
  std::size_t width_ = 0;
};

void require_elements(const Tensor& x) {
  if (without_partials(x.placements()) == x.placements()) return;
  throw base::Error(base::ErrorCode::kInvalidArgument, "shards_text of " + x.spec().to_string(),
                    "the terms of a Partial axis are no elements of the tensor",
                    "redistribute() it first");
}

std::string caption(const DeviceMesh& mesh, int first) {
  if (mesh.ndim() < 3) return "";
  const std::vector<int> coordinate = mesh.coordinate_of(first);
  std::string text;
  for (std::size_t axis = 0; axis + 2 < coordinate.size(); ++axis) {
    const std::string name =
        mesh.axis_names().empty() ? "axis " + std::to_string(axis) : mesh.axis_names()[axis];
    text += (text.empty() ? "" : ", ") + name + " at " + std::to_string(coordinate[axis]);
  }
  return text + "\n";
}

}  // namespace

std::string shards_text(const Tensor& x, Tensor::Site site) {
  require_elements(x);
  const Cause cause("shards_text", Cause::Wish::asked, site);
  const LocalTensor whole = whole_of(x, "shards_text").to(tensors::kCpu);
  const DeviceMesh mesh = x.device_mesh();
  const std::vector<int> ranks = mesh.ranks();
  const int columns = mesh.shape().back();
  const int rows = mesh.ndim() < 2 ? 1 : mesh.shape()[mesh.shape().size() - 2];
  std::string text = x.spec().to_string() + "\n";
  for (int first = 0; first < mesh.size(); first += rows * columns) {
    std::vector<Lines> cells;
    for (int i = first; i < first + rows * columns; ++i) {
      cells.push_back(lines_of(part_at(whole, x, i)));
    }
    text +=
        caption(mesh, first) +
        CellGrid(std::move(cells), {ranks.begin() + first, ranks.begin() + first + rows * columns},
                 static_cast<std::size_t>(columns))
            .text();
  }
  return text;
}

}  // namespace dtrun::dtensor
