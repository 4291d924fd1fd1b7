#include "dtrun/dtensor/layout/sharding_picture.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "layout/owner_grid.h"

namespace dtrun::dtensor {
namespace {

/// More do not fit on a page.
constexpr std::size_t kMostShown = 12;
constexpr std::size_t kMostSlabs = 8;
constexpr int kPageColumns = 56;
constexpr int kPageRows = 9;
constexpr int kRowsPerCell = 3;

/// Light backgrounds that black letters stand out from, also for who tells few colours apart.
struct PictureColor {
  int terminal;  ///< of the 256
  const char* svg;
};
constexpr PictureColor kColors[] = {{153, "#a6cee3"}, {223, "#fdd0a2"}, {151, "#b2df8a"},
                                    {218, "#fbb4c9"}, {183, "#cab2d6"}, {229, "#ffed9f"},
                                    {116, "#8dd3c7"}, {252, "#d9d9d9"}};

/// A dim as a picture shows it; a null stretch stands for those left out.
using Shown = std::vector<const Stretch*>;

Shown shown_of(const std::vector<Stretch>& parts, std::size_t most) {
  Shown shown;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool fits = parts.size() <= most;
    if (fits || i + 2 < most || i + 1 == parts.size()) {
      shown.push_back(&parts[i]);
    } else if (shown.back() != nullptr) {
      shown.push_back(nullptr);
    }
  }
  return shown;
}

std::string stretch_text(const Stretch* stretch) {
  return stretch == nullptr ? "..." : stretch->to_string();
}

/// A picture of two dims: one chunk of each dim before them.
struct Slab {
  std::string caption;  ///< "dim 0 at 0:2"
  std::vector<const Stretch*> fixed;
};

std::string mesh_words(const std::vector<int>& shape) {
  std::string text;
  for (const int size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "(" + text + ")";
}

/// What both forms of the picture show.
class Picture {
 public:
  explicit Picture(const ShardingSubject& subject)
      : grid_(subject.shape, subject.mesh_shape, subject.layout), title_(subject.title) {
    if (title_.empty()) {
      title_ = tensors::shape_to_string(subject.shape) + " on " + mesh_words(subject.mesh_shape) +
               ": " + subject.layout.to_string();
    }
    const std::size_t dims = grid_.dims();
    rows_ = dims < 2 ? Shown{&whole_} : shown_of(grid_.stretches(dims - 2), kMostShown);
    columns_ = dims < 1 ? Shown{&whole_} : shown_of(grid_.stretches(dims - 1), kMostShown);
    add_slabs({});
  }

  const std::string& title() const { return title_; }
  const Shown& rows() const { return rows_; }
  const Shown& columns() const { return columns_; }
  const std::vector<Slab>& slabs() const { return slabs_; }
  bool has_elements() const { return !rows_.empty() && !columns_.empty() && !slabs_.empty(); }
  bool has_rows() const { return grid_.dims() > 1; }
  bool has_columns() const { return grid_.dims() > 0; }
  bool leaves_slabs_out() const { return left_out_ > 0; }
  std::size_t left_out() const { return left_out_; }

  /// None for what is left out.
  std::optional<std::string> owners(const Slab& slab, std::size_t row, std::size_t column) const {
    if (rows_[row] == nullptr || columns_[column] == nullptr) return std::nullopt;
    std::vector<const Stretch*> cell = slab.fixed;
    if (has_rows()) cell.push_back(rows_[row]);
    if (has_columns()) cell.push_back(columns_[column]);
    return owners_text(grid_.owners(cell));
  }
  /// The same owners have the same colour.
  const PictureColor& color(const std::string& owners) {
    const auto [found, is_new] = colors_.try_emplace(owners, colors_.size() % std::size(kColors));
    return kColors[found->second];
  }
  std::string foot() const {
    std::string text;
    if (const std::int64_t idle = grid_.idle_ranks(); idle > 0) {
      text += std::to_string(idle) + (idle == 1 ? " rank holds" : " ranks hold") + " nothing.";
    }
    return text;
  }

 private:
  void add_slabs(std::vector<const Stretch*> fixed) {
    const std::size_t before = grid_.dims() < 2 ? 0 : grid_.dims() - 2;
    if (fixed.size() == before) {
      if (slabs_.size() == kMostSlabs) return void(++left_out_);
      std::string caption;
      for (std::size_t dim = 0; dim < before; ++dim) {
        caption +=
            (dim == 0 ? "dim " : ", dim ") + std::to_string(dim) + " at " + fixed[dim]->to_string();
      }
      slabs_.push_back({std::move(caption), std::move(fixed)});
      return;
    }
    for (const Stretch& part : grid_.stretches(fixed.size())) {
      std::vector<const Stretch*> longer = fixed;
      longer.push_back(&part);
      add_slabs(std::move(longer));
    }
  }

  const OwnerGrid grid_;
  const Stretch whole_{0, 1};
  std::string title_;
  Shown rows_, columns_;
  std::vector<Slab> slabs_;
  std::size_t left_out_ = 0;
  std::map<std::string, std::size_t> colors_;
};

/// Lengths in proportion to the sizes, each at least `least`.
std::vector<int> lengths_of(const Shown& shown, int page, int least) {
  std::int64_t whole = 0;
  for (const Stretch* stretch : shown) whole += stretch == nullptr ? 0 : stretch->size;
  std::vector<int> lengths;
  for (const Stretch* stretch : shown) {
    const double share =
        stretch == nullptr ? 0 : static_cast<double>(stretch->size) / static_cast<double>(whole);
    lengths.push_back(std::max(least, static_cast<int>(share * page + 0.5)));
  }
  return lengths;
}

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

std::string centered(const std::string& text, int width) {
  const int blanks = std::max(0, width - static_cast<int>(text.size()));
  return std::string(static_cast<std::size_t>(blanks / 2), ' ') + text +
         std::string(static_cast<std::size_t>(blanks - blanks / 2), ' ');
}

class TextPicture {
 public:
  TextPicture(Picture& picture, Colors colors) : picture_(picture), colors_(colors) {
    std::size_t widest = 3;
    for (const Slab& slab : picture.slabs()) {
      for (std::size_t r = 0; r < picture.rows().size(); ++r) {
        for (std::size_t c = 0; c < picture.columns().size(); ++c) {
          widest = std::max(widest, picture.owners(slab, r, c).value_or("").size());
        }
      }
    }
    for (const Stretch* column : picture.columns()) {
      widest = std::max(widest, stretch_text(column).size());
    }
    for (const Stretch* row : picture.rows()) margin_ = std::max(margin_, stretch_text(row).size());
    if (!picture.has_rows()) margin_ = 0;
    widths_ = lengths_of(picture.columns(), kPageColumns, static_cast<int>(widest) + 2);
    const int rows = static_cast<int>(picture.rows().size());
    heights_ = lengths_of(picture.rows(),
                          picture.has_rows() ? std::min(kPageRows, rows * kRowsPerCell) : 1, 1);
  }

  std::string text() const {
    std::string result = picture_.title() + "\n";
    if (!picture_.has_elements()) return result + "It has no elements.\n";
    for (const Slab& slab : picture_.slabs()) {
      result += "\n";
      if (!slab.caption.empty()) result += slab.caption + "\n";
      result += slab_text(slab);
    }
    if (picture_.leaves_slabs_out()) {
      result += "\n... and " + std::to_string(picture_.left_out()) + " more such pictures\n";
    }
    const std::string foot = picture_.foot();
    return foot.empty() ? result : result + foot + "\n";
  }

 private:
  std::string slab_text(const Slab& slab) const {
    std::string result;
    if (picture_.has_columns()) {
      std::string heads = indent("");
      for (std::size_t c = 0; c < widths_.size(); ++c) {
        heads += " " + centered(stretch_text(picture_.columns()[c]), widths_[c]);
      }
      heads.erase(heads.find_last_not_of(' ') + 1);
      result += heads + "\n";
    }
    result += rule("┌", "┬", "┐");
    for (std::size_t r = 0; r < heights_.size(); ++r) {
      if (r > 0) result += rule("├", "┼", "┤");
      for (int line = 0; line < heights_[r]; ++line) {
        const bool is_middle = line == (heights_[r] - 1) / 2;
        const std::string head =
            is_middle && picture_.has_rows() ? stretch_text(picture_.rows()[r]) : std::string();
        result += indent(head) + "│";
        for (std::size_t c = 0; c < widths_.size(); ++c) {
          result += cell_line(slab, r, c, is_middle) + "│";
        }
        result += "\n";
      }
    }
    return result + rule("└", "┴", "┘");
  }

  std::string cell_line(const Slab& slab, std::size_t r, std::size_t c, bool is_middle) const {
    const std::optional<std::string> owners = picture_.owners(slab, r, c);
    const std::string line = centered(is_middle ? owners.value_or("...") : "", widths_[c]);
    if (colors_ == Colors::none || !owners) return line;
    return "\x1b[30;48;5;" + std::to_string(picture_.color(*owners).terminal) + "m" + line +
           "\x1b[0m";
  }

  std::string indent(const std::string& head) const {
    if (margin_ == 0) return "";
    return std::string(margin_ - head.size(), ' ') + head + " ";
  }
  std::string rule(const char* left, const char* middle, const char* right) const {
    std::string line = indent("");
    for (std::size_t c = 0; c < widths_.size(); ++c) {
      line += (c == 0 ? left : middle) + repeated("─", widths_[c]);
    }
    return line + right + "\n";
  }

  Picture& picture_;
  const Colors colors_;
  std::size_t margin_ = 0;
  std::vector<int> widths_, heights_;
};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '<')
      result += "&lt;";
    else if (letter == '&')
      result += "&amp;";
    else
      result += letter;
  }
  return result;
}

class SvgPicture {
 public:
  explicit SvgPicture(Picture& picture) : picture_(picture) {
    std::size_t widest = 1;
    for (const Slab& slab : picture.slabs()) {
      for (std::size_t r = 0; r < picture.rows().size(); ++r) {
        for (std::size_t c = 0; c < picture.columns().size(); ++c) {
          widest = std::max(widest, picture.owners(slab, r, c).value_or("").size());
        }
      }
    }
    widths_ = lengths_of(picture.columns(), 420, std::max(56, static_cast<int>(widest) * 9 + 16));
    heights_ = lengths_of(picture.rows(), picture.has_rows() ? 240 : 56, 30);
    for (const int width : widths_) slab_width_ += width;
    for (const int height : heights_) slab_height_ += height;
  }

  std::string text() {
    const int slabs = std::max(1, static_cast<int>(picture_.slabs().size()));
    const int title_width = static_cast<int>(picture_.title().size()) * 9 + 40;
    const int width = std::max(title_width, kLeft + slabs * (slab_width_ + kLeft));
    const int height = kTop + slab_height_ + 50;
    std::string result = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(width) +
                         "\" height=\"" + number(height) + "\" viewBox=\"0 0 " + number(width) +
                         " " + number(height) +
                         "\" font-family=\"sans-serif\" font-size=\"14\" text-anchor=\"middle\">\n"
                         "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    result += "<text x=\"20\" y=\"26\" text-anchor=\"start\" font-weight=\"bold\">" +
              escaped(picture_.title()) + "</text>\n";
    int left = kLeft;
    if (picture_.has_elements()) {
      for (const Slab& slab : picture_.slabs()) {
        result += slab_text(slab, left);
        left += slab_width_ + kLeft;
      }
    }
    std::string foot = picture_.has_elements() ? picture_.foot() : "It has no elements.";
    if (picture_.leaves_slabs_out()) {
      foot += " " + std::to_string(picture_.left_out()) + " more such pictures are left out.";
    }
    result += "<text x=\"20\" y=\"" + number(height - 14) + "\" text-anchor=\"start\">" + foot +
              "</text>\n";
    return result + "</svg>\n";
  }

 private:
  static constexpr int kLeft = 64, kTop = 84;
  static std::string number(int value) { return std::to_string(value); }

  std::string slab_text(const Slab& slab, int left) {
    std::string result;
    if (!slab.caption.empty()) result += label(left + slab_width_ / 2, 50, slab.caption);
    int x = left;
    for (std::size_t c = 0; c < widths_.size(); x += widths_[c++]) {
      if (picture_.has_columns()) {
        result += label(x + widths_[c] / 2, kTop - 10, stretch_text(picture_.columns()[c]));
      }
    }
    int y = kTop;
    for (std::size_t r = 0; r < heights_.size(); y += heights_[r++]) {
      if (picture_.has_rows()) {
        result += "<text x=\"" + number(left - 8) + "\" y=\"" + number(y + heights_[r] / 2 + 5) +
                  "\" text-anchor=\"end\" fill=\"#555\">" + stretch_text(picture_.rows()[r]) +
                  "</text>\n";
      }
      x = left;
      for (std::size_t c = 0; c < widths_.size(); x += widths_[c++]) {
        result += cell(slab, r, c, x, y);
      }
    }
    return result;
  }

  std::string cell(const Slab& slab, std::size_t r, std::size_t c, int x, int y) {
    const std::optional<std::string> owners = picture_.owners(slab, r, c);
    const std::string fill = owners ? picture_.color(*owners).svg : "white";
    std::string place = slab.caption;
    if (picture_.has_rows()) place += ", rows " + stretch_text(picture_.rows()[r]);
    if (picture_.has_columns()) place += ", columns " + stretch_text(picture_.columns()[c]);
    if (place.starts_with(", ")) place = place.substr(2);
    if (!place.empty()) place = ": " + place;  // a number has none
    return "<g><title>rank " + owners.value_or("...") + place + "</title><rect x=\"" + number(x) +
           "\" y=\"" + number(y) + "\" width=\"" + number(widths_[c]) + "\" height=\"" +
           number(heights_[r]) + "\" fill=\"" + fill + "\" stroke=\"#333\"/><text x=\"" +
           number(x + widths_[c] / 2) + "\" y=\"" + number(y + heights_[r] / 2 + 5) + "\">" +
           owners.value_or("...") + "</text></g>\n";
  }

  static std::string label(int x, int y, const std::string& text) {
    return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" fill=\"#555\">" + text +
           "</text>\n";
  }

  Picture& picture_;
  std::vector<int> widths_, heights_;
  int slab_width_ = 0, slab_height_ = 0;
};

}  // namespace

std::string sharding_text(const ShardingSubject& subject, Colors colors) {
  Picture picture(subject);
  return TextPicture(picture, colors).text();
}

std::string sharding_svg(const ShardingSubject& subject) {
  Picture picture(subject);
  return SvgPicture(picture).text();
}

}  // namespace dtrun::dtensor
