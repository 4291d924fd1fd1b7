// StartSign: in a job of dtrun --hosts, the starter's word that all hosts are ready. Without it a
// node's dtrun meets the others, and no round opens. In all other jobs it stands from the
// beginning.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::launcher {

class StartSign {
 public:
  /// @param source by which the word comes; closed: it is not waited for
  StartSign(base::EventLoop& loop, base::UniqueFd source);

  /// Calls back when the sign has been given; maybe at once.
  void when_given(base::EventLoop::Callback callback);
  /// Calls back when it cannot come any more: the starter has given the job up.
  void when_refused(base::EventLoop::Callback callback) { on_refusal_ = std::move(callback); }

 private:
  void read();

  const base::UniqueFd source_;
  std::optional<base::FdWatch> watch_;
  bool given_;
  std::vector<base::EventLoop::Callback> waiting_;
  base::EventLoop::Callback on_refusal_;
};

}  // namespace dtrun::launcher
