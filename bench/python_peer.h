// A program that answers lines with numbers: how a peer is timed in its own process.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/base/env.h"
#include "dtrun/base/tool_process.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::bench {

class LinePeer {
 public:
  /// @param line the program's path and its arguments
  explicit LinePeer(const std::vector<std::string>& line) {
    base::Pipe to = base::make_pipe();
    base::Pipe from = base::make_pipe();
    child_.emplace(loop_,
                   base::ToolCommand{.path = line.front(),
                                     .arguments = {line.begin() + 1, line.end()},
                                     .environment = base::Environment::current().as_strings()},
                   base::ToolStreams{.in = to.read_end.get(), .out = from.write_end.get()},
                   nullptr);
    requests_ = std::move(to.write_end);
    answers_ = ::fdopen(from.read_end.release(), "r");
  }
  ~LinePeer() { std::fclose(answers_); }
  LinePeer(const LinePeer&) = delete;
  LinePeer& operator=(const LinePeer&) = delete;

  std::optional<double> time(const std::string& question) {
    const std::string line = question + "\n";
    if (::write(requests_.get(), line.data(), line.size()) < 0) return std::nullopt;
    double answer = 0;
    if (std::fscanf(answers_, "%lf", &answer) != 1) return std::nullopt;
    return answer;
  }

 private:
  base::EventLoop loop_;
  std::optional<base::ToolProcess> child_;
  base::UniqueFd requests_;
  std::FILE* answers_ = nullptr;
};

/// A script of this folder.
struct PythonPeer : LinePeer {
  PythonPeer(const std::string& python, const std::string& script)
      : LinePeer({python, DTRUN_BENCH_FOLDER "/" + script}) {}
};

}  // namespace dtrun::bench
