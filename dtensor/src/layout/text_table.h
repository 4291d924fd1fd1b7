// TextTable: rows of words in columns that stand under each other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::dtensor {

class TextTable {
 public:
  enum class Align { left, right };
  explicit TextTable(std::vector<Align> columns) : columns_(std::move(columns)) {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  /// A line per row, each after `margin`, without blanks at its end.
  std::string text(const std::string& margin = "") const {
    std::vector<std::size_t> widths(columns_.size(), 0);
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string all;
    for (const auto& row : rows_) {
      std::string line = margin;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string blanks(widths[i] - row[i].size(), ' ');
        line += i == 0 ? "" : "  ";
        line += columns_[i] == Align::left ? row[i] + blanks : blanks + row[i];
      }
      line.erase(line.find_last_not_of(' ') + 1);
      all += line + "\n";
    }
    return all;
  }

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// "4,194,304".
inline std::string grouped_digits(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t end = text.size(); end > 3 + (number < 0 ? 1U : 0U);) {
    end -= 3;
    text.insert(end, 1, ',');
  }
  return text;
}

}  // namespace dtrun::dtensor
