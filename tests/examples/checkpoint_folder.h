// CheckpointFolder: where a test's train_gpt keeps its checkpoints, removed at the end.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace dtrun {

class CheckpointFolder {
 public:
  explicit CheckpointFolder(const std::string& name)
      : path_(testing::TempDir() + "gpt." + std::to_string(::getpid()) + "." + name) {}
  ~CheckpointFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  /// Names, shapes and checksums of what step N saved: equal where all elements are.
  std::string elements_of(int step) const {
    const std::string text = manifest_of(step);
    const std::size_t begin = text.find("\"tensors\":["), end = text.rfind(",\n\"checksum\"");
    EXPECT_LT(begin, end) << text;
    return begin < end ? text.substr(begin, end - begin) : "";
  }
  /// The last step whose checkpoint has its final name; -1: there is none.
  int last_kept() const {
    int last = -1;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("step-")) last = std::max(last, std::atoi(name.c_str() + 5));
    }
    return last;
  }
  /// How many have saved step N; 0: it is not there.
  int ranks_of(int step) const {
    const std::string text = manifest_of(step), member = "\"ranks\":";
    const std::size_t at = text.find(member);
    return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + member.size());
  }

 private:
  std::string manifest_of(int step) const {
    std::ifstream file(path_ + "/step-" + std::to_string(step) + "/manifest.json");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string path_;
};

}  // namespace dtrun
