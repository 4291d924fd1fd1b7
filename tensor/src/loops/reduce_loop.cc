#include "loops/reduce_loop.h"

#include <algorithm>
#include <cstddef>

#include "copy_kernel.h"
#include "dtrun/tensor/shapes_only.h"
#include "dtrun/tensor/threads.h"
#include "kernels/transpose_kernel.h"
#include "loops/dim_walk.h"
#include "loops/scratch.h"
#include "loops/thread_pool.h"

namespace dtrun::tensors {
namespace {

/// Elements of a chunk.
constexpr std::int64_t kGrain = 32768;

/// Whether one thread does all of it: then chunks are of no use. Where ShapesOnly stands they are,
/// for it leaves out chunks.
bool is_alone() {
  return num_threads() == 1 && !ShapesOnly::stands();
}

class Reduction {
 public:
  Reduction(const LocalTensor& target, const LocalTensor& source, const std::vector<bool>& reduced,
            const FoldKernel& kernel, const FoldNumbers& numbers);

  void run();

 private:
  // A unit is what is folded together: the elements of one result, or of up to width_ results
  // along the innermost dim that is kept, as side_ says.
  enum class Side : std::uint8_t {
    rows,     ///< each a run in memory
    turned,   ///< such rows, so short that a panel is made of them
    panel,    ///< side by side
    columns,  ///< the same for kernels without a panel
  };
  void choose_side(std::int64_t size);
  std::int64_t units() const { return outer_ * units_a_line_; }
  std::int64_t panel_width() const;
  void run_unit(std::int64_t unit, bool parallel_blocks) const;
  void fold_block(std::byte* states, const char* data, std::int64_t block,
                  std::int64_t width) const;
  std::int64_t fold_blocks(std::byte* states, const char* data, std::int64_t block,
                           std::int64_t end, std::int64_t width) const;
  void fold_rows(std::byte* states, const char* data, std::int64_t count, std::int64_t width) const;
  void fold_turned(std::byte* states, const char* data, std::int64_t count,
                   std::int64_t width) const;
  void fold_panel(std::byte* states, const char* data, std::int64_t block,
                  std::int64_t width) const;
  void fold_columns(std::byte* states, const char* data, std::int64_t block,
                    std::int64_t width) const;
  void finish(const std::byte* states, std::int64_t first, std::int64_t width) const;
  void load(std::byte* target, std::int64_t target_step, const char* source,
            std::int64_t source_step, std::int64_t count) const;
  void load_sequence(std::byte* target, std::int64_t target_step, const char* data,
                     std::int64_t first, std::int64_t count) const;
  std::int64_t block_count(std::int64_t block) const {
    return std::min(kFoldBlock, length_ - block * kFoldBlock);
  }

  const FoldKernel& kernel_;
  const FoldNumbers& numbers_;
  const char* source_;
  char* target_;
  std::int64_t result_size_;   ///< bytes, in memory
  std::int64_t element_size_;  ///< bytes, as the kernel takes them
  bool same_dtype_;
  bool is_run_;  ///< the elements of a result are one, as the kernel takes it
  Side side_ = Side::rows;
  RowKernel load_;
  RowKernel store_;
  DimWalk folded_;
  DimWalk kept_;
  std::int64_t length_ = 1;  ///< elements of a result
  std::int64_t line_ = 1;    ///< results along the innermost kept dim
  std::int64_t outer_ = 1;   ///< such lines
  std::int64_t width_ = 1;
  std::int64_t units_a_line_ = 1;
  std::int64_t blocks_ = 0;
};

Reduction::Reduction(const LocalTensor& target, const LocalTensor& source,
                     const std::vector<bool>& reduced, const FoldKernel& kernel,
                     const FoldNumbers& numbers)
    : kernel_(kernel),
      numbers_(numbers),
      source_(static_cast<const char*>(source.data())),
      target_(static_cast<char*>(target.data())),
      result_size_(static_cast<std::int64_t>(item_size(target.dtype()))),
      element_size_(static_cast<std::int64_t>(item_size(kernel.takes))),
      same_dtype_(source.dtype() == kernel.takes),
      load_(copy_kernel(kernel.takes, source.dtype())),
      store_(target.dtype() == kernel.result ? nullptr
                                             : copy_kernel(target.dtype(), kernel.result)) {
  const auto size = static_cast<std::int64_t>(item_size(source.dtype()));
  for (std::size_t d = 0; d < reduced.size(); ++d) {
    (reduced[d] ? folded_ : kept_).add(source.shape()[d], source.strides()[d] * size);
  }
  length_ = folded_.count();
  line_ = kept_.inner_size();
  outer_ = target.numel() / std::max<std::int64_t>(line_, 1);
  blocks_ = (length_ + kFoldBlock - 1) / kFoldBlock;
  is_run_ = same_dtype_ && folded_.is_one_run() && folded_.inner_step() == size;
  if (line_ > 1) choose_side(size);
  units_a_line_ = (line_ + width_ - 1) / width_;
}

/// Rows that are runs in memory are taken together where they are short: what a unit costs besides
/// its elements is paid once. Side by side where the kept dim is the faster one in memory, or where
/// rows are so short that each would cost more than its elements. @param size of an element, bytes
void Reduction::choose_side(std::int64_t size) {
  constexpr std::int64_t kShortRow = 32;
  const bool kept_is_faster = std::abs(kept_.inner_step()) < std::abs(folded_.inner_step());
  const bool is_short = length_ <= kShortRow;
  // Those that are converted must follow each other.
  const bool are_runs = folded_.is_one_run() && folded_.inner_step() == size &&
                        (same_dtype_ || kept_.inner_step() == length_ * size);
  if (are_runs && !kept_is_faster && blocks_ == 1) {
    constexpr std::int64_t kConverted = 2048, kMost = 256;
    // So many that run() deals each unit as a chunk; one thread alone takes the most rows.
    const std::int64_t direct = is_alone() ? kMost * kFoldBlock : kGrain;
    static_assert(kMost * 8 <= kPanelBytes && kFoldsAtOnce <= kTurnedSquare);
    const bool by_fours = kernel_.four != nullptr && length_ % kFoldLanes == 0;
    if (is_short && kernel_.panel != nullptr && !by_fours) side_ = Side::turned;
    const std::int64_t step = side_ == Side::turned ? kTurnedSquare : kFoldsAtOnce;
    const std::int64_t elements = same_dtype_ && side_ == Side::rows ? direct : kConverted;
    width_ = std::clamp(elements / length_ / step * step, step, kMost);
  } else if (kept_is_faster || is_short) {
    // Wide where rows are runs in memory; half as wide where they are converted, into the cache.
    const bool runs = kernel_.panel != nullptr && kept_.inner_step() == size;
    const bool direct = runs && same_dtype_ && folded_.is_one_run();
    constexpr std::int64_t kConverted = 128, kOther = 16;
    width_ = direct ? panel_width() : runs ? kConverted : kOther;
    side_ = kernel_.panel != nullptr ? Side::panel : Side::columns;
  }
  width_ = std::min(width_, line_);
}

/// No result depends on it. A row that is read whole comes faster from the third cache and from
/// memory than pieces of it, whose lines share few places of the second cache; each thread should
/// have a panel. The lanes of a narrow panel stay in the first cache: of few rows, which come from
/// the second, that counts more.
std::int64_t Reduction::panel_width() const {
  constexpr std::int64_t kNarrow = 256, kManyRows = 256;
  if (length_ < kManyRows) return kNarrow;
  const std::int64_t widest = kPanelBytes / kernel_.state_bytes;
  const std::int64_t lines = outer_ * blocks_, threads = num_threads();
  const std::int64_t share = lines >= threads ? line_ : (line_ + threads - 1) / threads;
  return std::clamp((share + kNarrow - 1) / kNarrow * kNarrow, kNarrow, widest);
}

void Reduction::run() {
  const std::int64_t unit_work = std::max<std::int64_t>(1, length_ * width_);
  // Few large results are dealt by their blocks, many by themselves.
  if (units() < 16 && blocks_ > 1) {
    for (std::int64_t unit = 0; unit < units(); ++unit) run_unit(unit, true);
    return;
  }
  parallel_for(units(), std::max<std::int64_t>(1, kGrain / unit_work),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t unit = begin; unit < end; ++unit) run_unit(unit, false);
               });
}

void Reduction::run_unit(std::int64_t unit, bool parallel_blocks) const {
  const std::int64_t line = unit / units_a_line_;
  const std::int64_t place = unit % units_a_line_ * width_;
  const std::int64_t width = std::min(width_, line_ - place);
  const std::int64_t first = line * line_ + place;
  const char* const data = source_ + kept_.offset(first);
  const std::int64_t stride = kernel_.state_bytes * width;
  Scratch scratch(stride * blocks_);
  std::byte* const states = scratch.data();
  const auto fold = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end;) {
      block += fold_blocks(states + block * stride, data, block, end, width);
    }
  };
  constexpr std::int64_t kBlocksAChunk = 32;
  if (parallel_blocks && !is_alone()) {
    parallel_for(blocks_, std::max<std::int64_t>(1, kBlocksAChunk / width), fold);
  } else {
    fold(0, blocks_);
  }
  if (blocks_ > 1) kernel_.join(states, blocks_, width);
  finish(blocks_ == 0 ? nullptr : states, first, width);
}

/// From `block` on, before `end`. @return how many
std::int64_t Reduction::fold_blocks(std::byte* states, const char* data, std::int64_t block,
                                    std::int64_t end, std::int64_t width) const {
  if (width == 1 && is_run_ && kernel_.blocks_share) {
    // Few enough for a second look in the second cache: an extreme of 0 and a nan need one.
    constexpr std::int64_t kMostShared = 16;
    end = std::min(end, block + kMostShared);
    const std::int64_t first = block * kFoldBlock;
    kernel_.block(states, data + first * element_size_, std::min(end * kFoldBlock, length_) - first,
                  first, numbers_);
    for (std::int64_t have = 1; have < end - block; have *= 2) {
      const std::int64_t more = std::min(have, end - block - have);
      std::copy_n(states, more * kernel_.state_bytes, states + have * kernel_.state_bytes);
    }
    return end - block;
  }
  const std::int64_t whole = std::min(end, length_ / kFoldBlock) - block;
  if (width == 1 && kernel_.four != nullptr && is_run_ && whole >= kFoldsAtOnce) {
    const std::int64_t step = kFoldBlock * element_size_, fours = whole / kFoldsAtOnce;
    kernel_.four(states, data + block * step, step, kFoldBlock, fours);
    return fours * kFoldsAtOnce;
  }
  fold_block(states, data, block, width);
  return 1;
}

void Reduction::fold_block(std::byte* states, const char* data, std::int64_t block,
                           std::int64_t width) const {
  if (width > 1) {
    if (side_ == Side::panel) return fold_panel(states, data, block, width);
    if (side_ == Side::columns) return fold_columns(states, data, block, width);
    if (side_ == Side::turned) return fold_turned(states, data, block_count(block), width);
    return fold_rows(states, data, block_count(block), width);
  }
  const std::int64_t first = block * kFoldBlock;
  const std::int64_t count = block_count(block);
  if (is_run_ || (same_dtype_ && count == 1 && folded_.is_one_run())) {
    return kernel_.block(states, data + first * folded_.inner_step(), count, first, numbers_);
  }
  alignas(64) std::byte elements[kFoldBlock * 8];
  load_sequence(elements, element_size_, data, first, count);
  kernel_.block(states, elements, count, first, numbers_);
}

/// Rows of one block.
void Reduction::fold_rows(std::byte* states, const char* data, std::int64_t count,
                          std::int64_t width) const {
  Scratch converted(same_dtype_ ? 0 : count * width * element_size_);
  std::int64_t step = kept_.inner_step();
  if (!same_dtype_) {
    load(converted.data(), element_size_, data, folded_.inner_step(), count * width);
    data = reinterpret_cast<const char*>(converted.data());
    step = count * element_size_;
  }
  const std::int64_t fours = kernel_.four != nullptr ? width / kFoldsAtOnce : 0;
  if (fours > 0) kernel_.four(states, data, step, count, fours);
  std::int64_t w = fours * kFoldsAtOnce;
  for (; w < width; ++w) {
    kernel_.block(states + w * kernel_.state_bytes, data + w * step, count, 0, numbers_);
  }
}

template <typename Word>
void turn(std::byte* result, std::int64_t result_row, const char* rows, std::int64_t step,
          std::int64_t width, std::int64_t count) {
  transpose_rows(reinterpret_cast<Word*>(result), result_row, reinterpret_cast<const Word*>(rows),
                 step / static_cast<std::int64_t>(sizeof(Word)), width, count, result_row);
}

/// The same rows, short ones, for the panel's kernel.
void Reduction::fold_turned(std::byte* states, const char* data, std::int64_t count,
                            std::int64_t width) const {
  const std::int64_t row = (width + kTurnedSquare - 1) / kTurnedSquare * kTurnedSquare;
  Scratch converted(same_dtype_ ? 0 : count * width * element_size_);
  Scratch panel(count * row * element_size_);
  std::int64_t step = kept_.inner_step();
  if (!same_dtype_) {
    load(converted.data(), element_size_, data, folded_.inner_step(), count * width);
    data = reinterpret_cast<const char*>(converted.data());
    step = count * element_size_;
  }
  const auto turn_words = element_size_ == 2   ? &turn<std::uint16_t>
                          : element_size_ == 4 ? &turn<std::uint32_t>
                                               : &turn<std::uint64_t>;
  turn_words(panel.data(), row, data, step, width, count);
  kernel_.panel(states, reinterpret_cast<const char*>(panel.data()), row * element_size_, count,
                width, 0);
}

void Reduction::fold_panel(std::byte* states, const char* data, std::int64_t block,
                           std::int64_t width) const {
  const std::int64_t first = block * kFoldBlock;
  const std::int64_t count = block_count(block);
  if (same_dtype_ && folded_.is_one_run() && kept_.inner_step() == element_size_) {
    const std::int64_t step = folded_.inner_step();
    return kernel_.panel(states, data + first * step, step, count, width, first);
  }
  Scratch rows(count * width * element_size_);
  for (std::int64_t i = 0; i < count; ++i) {
    load(rows.data() + i * width * element_size_, element_size_, data + folded_.offset(first + i),
         kept_.inner_step(), width);
  }
  kernel_.panel(states, reinterpret_cast<const char*>(rows.data()), width * element_size_, count,
                width, first);
}

void Reduction::fold_columns(std::byte* states, const char* data, std::int64_t block,
                             std::int64_t width) const {
  const std::int64_t first = block * kFoldBlock;
  const std::int64_t count = block_count(block);
  // Row after row, since those lie together in memory; not quite a power of two apart.
  const std::int64_t column = (count + 16) * element_size_;
  Scratch columns(width * column);
  for (std::int64_t i = 0; i < count; ++i) {
    load(columns.data() + i * element_size_, column, data + folded_.offset(first + i),
         kept_.inner_step(), width);
  }
  for (std::int64_t w = 0; w < width; ++w) {
    kernel_.block(states + w * kernel_.state_bytes, columns.data() + w * column, count, first,
                  numbers_);
  }
}

void Reduction::load(std::byte* target, std::int64_t target_step, const char* source,
                     std::int64_t source_step, std::int64_t count) const {
  char* const pointers[] = {reinterpret_cast<char*>(target), const_cast<char*>(source)};
  const std::int64_t steps[] = {target_step, source_step};
  load_(pointers, steps, count);
}

void Reduction::load_sequence(std::byte* target, std::int64_t target_step, const char* data,
                              std::int64_t first, std::int64_t count) const {
  const std::int64_t run = folded_.inner_size();
  for (std::int64_t i = first; i < first + count;) {
    const std::int64_t part = std::min(run - i % run, first + count - i);
    load(target + (i - first) * target_step, target_step, data + folded_.offset(i),
         folded_.inner_step(), part);
    i += part;
  }
}

void Reduction::finish(const std::byte* states, std::int64_t first, std::int64_t width) const {
  char* const results = target_ + first * result_size_;
  if (store_ == nullptr) return kernel_.finish(results, states, width, numbers_);
  alignas(64) char computed[kPanelBytes];
  kernel_.finish(computed, states, width, numbers_);
  char* const pointers[] = {results, computed};
  const std::int64_t steps[] = {result_size_, static_cast<std::int64_t>(item_size(kernel_.result))};
  store_(pointers, steps, width);
}

}  // namespace

void reduce_elements(const LocalTensor& target, const LocalTensor& source,
                     const std::vector<bool>& reduced, const FoldKernel& kernel,
                     const FoldNumbers& numbers) {
  if (target.numel() == 0) return;
  const ShapesOnly shapes_only = shapes_only_for(target.dtype());
  Reduction(target, source, reduced, kernel, numbers).run();
}

}  // namespace dtrun::tensors
