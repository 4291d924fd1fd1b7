#include "loops/row_loop.h"

#include <algorithm>
#include <cstdlib>

#include "copy_kernel.h"
#include "dtrun/base/check.h"
#include "loops/dim_walk.h"
#include "loops/scratch.h"
#include "loops/thread_pool.h"

namespace dtrun::tensors {
namespace {

/// Lines side by side are moved together, so that memory is read as it lies.
constexpr std::int64_t kSideBySide = 16;
/// Lines that follow each other are moved together, too: so many elements of one operand, which
/// with the others stay in the first cache.
constexpr std::int64_t kFollowing = 2048;

/// One operand's way to its rows and back.
struct LinePort {
  char* data;
  Flow flow;
  DimWalk others;
  std::int64_t step = 0;       ///< along the line, bytes
  std::int64_t side_step = 0;  ///< to the next line
  bool direct;
  bool follow;  ///< each line begins where the one before ends
  RowKernel move;

  LinePort(const LineOperand& operand, int dim, DType compute)
      : data(static_cast<char*>(operand.tensor->data())), flow(operand.flow) {
    const LocalTensor& tensor = *operand.tensor;
    const auto size = static_cast<std::int64_t>(item_size(tensor.dtype()));
    for (int d = 0; d < tensor.dim(); ++d) {
      const auto place = static_cast<std::size_t>(d);
      if (d == dim) {
        step = tensor.strides()[place] * size;
      } else {
        others.add(tensor.shape()[place], tensor.strides()[place] * size);
      }
    }
    side_step = others.inner_step();
    direct = tensor.dtype() == compute && (step == size || tensor.dim() == 0);
    follow = step == size && others.is_one_run() &&
             (others.inner_size() == 1 || side_step == tensor.size(dim) * size);
    move = flow == Flow::in ? copy_kernel(compute, tensor.dtype())
                            : copy_kernel(tensor.dtype(), compute);
  }

  void transfer(char* memory, std::int64_t memory_step, char* row, std::int64_t row_step,
                std::int64_t count) const {
    char* const inwards[] = {row, memory};
    const std::int64_t inward_steps[] = {row_step, memory_step};
    char* const outwards[] = {memory, row};
    const std::int64_t outward_steps[] = {memory_step, row_step};
    move(flow == Flow::in ? inwards : outwards, flow == Flow::in ? inward_steps : outward_steps,
         count);
  }
};

class LineGroups {
 public:
  LineGroups(int dim, DType compute, std::span<const LineOperand> operands, LineBody body)
      : body_(body), size_(static_cast<std::int64_t>(item_size(compute))) {
    const LocalTensor& first = *operands[0].tensor;
    length_ = first.dim() == 0 ? 1 : first.size(dim);
    lines_ = first.numel() / std::max<std::int64_t>(length_, 1);
    for (const LineOperand& operand : operands) ports_.emplace_back(operand, dim, compute);
    row_bytes_ = (length_ * size_ + 127) / 64 * 64;
    const auto is_direct = [](const LinePort& port) { return port.direct; };
    if (std::all_of(ports_.begin(), ports_.end(), is_direct)) {
      lines_a_group_ = std::max<std::int64_t>(lines_, 1);
      row_bytes_ = 0;
      return;
    }
    following_ = std::all_of(ports_.begin(), ports_.end(),
                             [](const LinePort& port) { return port.direct || port.follow; });
    if (following_) {
      lines_a_group_ = std::max<std::int64_t>(1, kFollowing / std::max<std::int64_t>(length_, 1));
      row_bytes_ = length_ * size_;
      return;
    }
    for (const LinePort& port : ports_) {
      if (!port.direct && std::abs(port.side_step) < std::abs(port.step))
        lines_a_group_ = std::min(kSideBySide, port.others.inner_size());
    }
  }

  void run(std::int64_t a_chunk) const {
    if (lines_ == 0 || length_ == 0) return;
    parallel_for(lines_, a_chunk, [this](std::int64_t begin, std::int64_t end) {
      Scratch scratch(static_cast<std::int64_t>(ports_.size()) * lines_a_group_ * row_bytes_);
      for (std::int64_t line = begin; line < end;) {
        const std::int64_t width = std::min(width_at(line), end - line);
        run_group(line, width, reinterpret_cast<char*>(scratch.data()));
        line += width;
      }
    });
  }

 private:
  char* row(char* rows, std::size_t k, std::int64_t w) const {
    return rows + (static_cast<std::int64_t>(k) * lines_a_group_ + w) * row_bytes_;
  }

  /// Not beyond the end of what has one step from line to line.
  std::int64_t width_at(std::int64_t line) const {
    std::int64_t width = lines_a_group_;
    for (const LinePort& port : ports_) {
      const std::int64_t inner = port.others.inner_size();
      width = std::min(width, inner - line % inner);
    }
    return width;
  }

  void move_group(Flow flow, std::int64_t line, std::int64_t width, char* rows) const {
    for (std::size_t k = 0; k < ports_.size(); ++k) {
      const LinePort& port = ports_[k];
      if (port.direct || port.flow != flow) continue;
      char* const memory = port.data + port.others.offset(line);
      if (following_ || width == 1) {
        port.transfer(memory, port.step, row(rows, k, 0), size_, width * length_);
        continue;
      }
      for (std::int64_t i = 0; i < length_; ++i) {
        port.transfer(memory + i * port.step, port.side_step, row(rows, k, 0) + i * size_,
                      row_bytes_, width);
      }
    }
  }

  void run_group(std::int64_t line, std::int64_t width, char* rows) const {
    move_group(Flow::in, line, width, rows);
    std::array<void*, kMostLineOperands> operands;
    std::array<std::int64_t, kMostLineOperands> steps;
    for (std::size_t k = 0; k < ports_.size(); ++k) {
      const LinePort& port = ports_[k];
      operands[k] = port.direct ? port.data + port.others.offset(line) : row(rows, k, 0);
      steps[k] = port.direct ? port.side_step : row_bytes_;
    }
    body_.run(body_.context, {line, width, ports_.size(), operands.data(), steps.data()});
    move_group(Flow::out, line, width, rows);
  }

  LineBody body_;
  std::int64_t size_;
  std::int64_t length_;
  std::int64_t lines_;
  std::int64_t lines_a_group_ = 1;
  bool following_ = false;  ///< the lines of a group, in memory
  std::int64_t row_bytes_;  ///< from a line of a group to the next, where they are brought
  std::vector<LinePort> ports_;
};

}  // namespace

std::int64_t lines_a_chunk(std::int64_t length) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(length, 1));
}

void run_lines(int dim, DType compute, std::span<const LineOperand> operands, std::int64_t a_chunk,
               LineBody body) {
  DT_CHECK(!operands.empty() && operands.size() <= kMostLineOperands);
  LineGroups(dim, compute, operands, body).run(a_chunk);
}

}  // namespace dtrun::tensors
