// PmiClient: the words of PMI-1, in which processes speak with what has started them (the mpiexec
// of MPICH, Intel MPI and MVAPICH, which is Hydra; Flux), over a descriptor that they have
// inherited, or to a port (PMI_PORT): lines of "cmd=NAME key=value ...". Blocks.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::launcher {

class PmiClient {
 public:
  /// For messages.
  struct Server {
    std::string name;     ///< "MPICH"
    std::string by_hand;  ///< the line that needs no answer of it
  };

  /// Takes the descriptor, which nobody else may use any more.
  /// @throws Error kConnection when it does not answer as it should, here and below
  PmiClient(base::UniqueFd fd, Server server, base::Deadline deadline);

  /// Where this process has connected by itself, before all else: who it is.
  /// Returns how many there are.
  int introduce(int id);
  void begin();
  /// After begin(): the same for all processes of this start, and for no others.
  std::string job_name();
  /// Seen by all after the next barrier.
  void put(const std::string& key, const std::string& value);
  /// Returns when all processes of the job have come here.
  void barrier();
  std::string get(const std::string& key);
  /// Without this word Hydra takes the end of the connection for a crash.
  void finish();
  /// For somebody who goes on.
  base::UniqueFd release() { return std::move(fd_); }

 private:
  base::Error no_answer(const std::string& question, std::string why) const;
  std::string ask(const std::string& question, std::string_view answer);
  std::string read_line();

  base::UniqueFd fd_;
  Server server_;
  base::Deadline deadline_;
  std::string unread_;
  std::string job_name_;
};

/// "cmd=get_result rc=0 value=x": of "value", "x"; empty: there is none.
std::string pmi_field(std::string_view line, std::string_view name);

}  // namespace dtrun::launcher
