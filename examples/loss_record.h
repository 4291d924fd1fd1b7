// LossRecord: the loss of each step of train_gpt, in a file of numbers and in a picture.
#pragma once

#include <dtrun/dtrun.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <string>
#include <vector>

class LossRecord {
 public:
  /// Files of empty names are not written. Both are opened at once: a name that is wrong costs no
  /// training. @param done the steps before; their lines stay in the file of numbers @throws
  /// dtrun::Error kUsage where one cannot be written
  LossRecord(const std::string& csv, const std::string& svg, std::int64_t done)
      : csv_name_(csv), svg_name_(svg) {
    if (!csv.empty()) {
      const std::string lines = lines_of(csv, done);
      csv_ = opened(csv, std::ios::out);
      csv_ << std::setprecision(17) << "step,loss\n" << lines;
    }
    if (!svg.empty()) opened(svg, std::ios::app);
  }

  void add(std::int64_t step, double loss) {
    if (csv_.is_open()) csv_ << step << "," << loss << "\n";
    if (!svg_name_.empty()) losses_.push_back(loss);
  }

  /// @throws dtrun::Error kUsage where the lines so far cannot be written
  void flush() {
    if (csv_.is_open() && !csv_.flush()) refuse("cannot write all of " + csv_name_);
  }

  /// The steps of this start. @throws dtrun::Error kUsage
  void draw() const {
    if (losses_.empty()) return;
    std::ofstream svg = opened(svg_name_, std::ios::out);
    const double most = *std::ranges::max_element(losses_);
    svg << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='-60 -20 720 380' "
           "font-family='sans-serif' font-size='14'>"
           "<polyline fill='none' stroke='#0a7' stroke-width='2' points='";
    for (std::size_t i = 0; i < losses_.size(); ++i) {
      const double x = 640.0 * static_cast<double>(i + 1) / static_cast<double>(losses_.size());
      svg << x << "," << 320 * (1 - losses_[i] / most) << " ";
    }
    svg << "'/><path d='M0 0V320H640' fill='none' stroke='#888'/><g fill='#888'>"
           "<text x='-50' y='5'>"
        << std::round(most * 100) / 100 << "</text><text x='-20' y='325'>0</text>"
        << "<text x='600' y='345'>" << losses_.size() << " steps</text>"
        << "<text x='10' y='-5'>loss</text></g></svg>\n";
    if (!svg.flush()) refuse("cannot write all of " + svg_name_);
  }

 private:
  [[noreturn]] static void refuse(const std::string& what) {
    throw dtrun::Error(dtrun::ErrorCode::kUsage, "train_gpt: " + what, "",
                       "--csv, --svg: files in folders that are there, on a disk that has room");
  }

  static std::ofstream opened(const std::string& name, std::ios::openmode mode) {
    std::ofstream file(name, mode);
    if (!file) refuse("cannot write " + name);
    return file;
  }

  static std::string lines_of(const std::string& csv, std::int64_t done) {
    if (done == 0) return "";
    std::ifstream file(csv);
    std::string lines, line;
    for (std::getline(file, line); std::getline(file, line);) {
      // One without an end was cut by what killed the training.
      if (file.eof()) break;
      if (std::atoll(line.c_str()) <= done) lines += line + "\n";
    }
    return lines;
  }

  std::string csv_name_, svg_name_;
  std::ofstream csv_;
  std::vector<double> losses_;
};
