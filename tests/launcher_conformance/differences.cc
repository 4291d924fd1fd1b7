#include "cases.h"

namespace dtrun::launcher_conformance {

const std::vector<Difference>& differences() {
  static const std::vector<Difference> kDifferences = {
      {"*", "env.DTRUN_JOB_PAGE_FD", "-", "FD",
       "`DTRUN_JOB_PAGE_FD` and `DTRUN_JOB_PAGE_ID`, of dtrun's own libraries, are set"},
      {"*", "env.DTRUN_JOB_PAGE_ID", "-", "ID",
       "`DTRUN_JOB_PAGE_FD` and `DTRUN_JOB_PAGE_ID`, of dtrun's own libraries, are set"},
      {"*", "env.PYTHONFAULTHANDLER", "-", "1",
       "`PYTHONFAULTHANDLER=1` is set, unless the variable is there"},
      {"*", "env.MASTER_PORT", "PORT", "FREE",
       "a job on one node takes a free port, not 29500: two jobs do not clash"},
      {"default", "env.MASTER_PORT", "29500", "FREE",
       "a job on one node takes a free port, not 29500: two jobs do not clash"},
      {"*c10d", "env.MASTER_PORT", "FREE", "PORT",
       "the ranks' store listens where the agents meet, so that a firewall needs one port"},
      {"*", "env.MASTER_ADDR", "HOST", "127.0.0.1",
       "`--standalone` gives 127.0.0.1, not the host's name, which may not resolve"},
      {"*", "env.TORCHELASTIC_RUN_ID", "none", "UNIQUE",
       "a job on one node that was given no id makes one up"},
      {"standalone overrides the id", "env.TORCHELASTIC_RUN_ID", "UNIQUE", "job-1",
       "`--standalone` keeps an id that was given"},
      {"*", "env.TORCHELASTIC_ERROR_FILE", "$FOLDER/tmp/torchelastic_RANDOM/*",
       "$FOLDER/tmp/dtrun_RANDOM/*",
       "without `--log-dir` the error files lie flat in a folder that is removed at the end"},
      {"a rank raises*", "table.*", "  error_file: $FOLDER/tmp/*", "  error_file: <N/A>",
       "without `--log-dir` the error files lie flat in a folder that is removed at the end"},
      {"*", "table.*", "  traceback : To enable traceback see: *",
       "  traceback : no error.json was written; *",
       "without an error.json the table is followed by the rank's last lines of standard error"},
      {"teed*", "out", "*]:*", "*] *",
       "tee'd lines have the tag `[node:rank] `; under the name torchrun they have torchrun's"},
      {"teed*", "err", "*]:*", "*] *",
       "tee'd lines have the tag `[node:rank] `; under the name torchrun they have torchrun's"},
      {"filtered by rank", "out", "*]:*", "*] *",
       "tee'd lines have the tag `[node:rank] `; under the name torchrun they have torchrun's"},
      {"filtered by rank", "err", "*]:*", "*] *",
       "tee'd lines have the tag `[node:rank] `; under the name torchrun they have torchrun's"},
      {"a macro in the arguments", "arguments", "*><0> | *><1>", "*><$local_rank> | *",
       "only `${local_rank}` is a macro; `$local_rank` and `$$` stay as they are"},
      {"an argument of the script that is nearly an option", "*", "*", "*",
       "after the program's name dtrun looks only for a lone `:`"},
      {"wrong: *", "exit*", "*", "*", "a wrong command line ends with 64, not with 2 or 1"},
      {"* to the launcher", "exit*", "*", "*",
       "a job that was stopped by a signal ends with 128 + the signal, not with 1"},
      {"a rank ignores SIGTERM", "exit*", "*", "*",
       "a job that was stopped by a signal ends with 128 + the signal, not with 1"},
      {"*", "warns of OMP_NUM_THREADS", "yes", "no",
       "dtrun says with `-v` only that it sets OMP_NUM_THREADS=1; under the name torchrun it says "
       "so as torchrun does"},
      {"*", "exit", "1", "*", "the exit code is that of the first rank that failed, not 1"},
  };
  return kDifferences;
}

}  // namespace dtrun::launcher_conformance
