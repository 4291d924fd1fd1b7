#include "options/usage_text.h"

namespace dtrun::launcher {
namespace {

constexpr UsageExample kExamples[] = {
    {"dtrun --nproc_per_node=4 ./app --lr 0.1", "four ranks on this node"},
    {"dtrun --nproc_per_node=gpu train.py", "a Python script, one rank for each GPU"},
    {"dtrun --hosts=node1:4,node2:4 ./app", "four ranks on each of two hosts, started over ssh"},
    {"dtrun --nproc_per_node=1 ./learner : --nproc_per_node=3 ./actor",
     "two programs, one job of four ranks"},
    {"srun --ntasks-per-node=1 dtrun ./app", "nodes, GPUs and the meeting point from Slurm"},
    {"dtrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=node1:29400 ./app",
     "the same command on both nodes; one of them is node1"},
    {"dtrun --nnodes=1:4 --max_restarts=3 --rdzv_backend=c10d --rdzv_endpoint=node1 ./app",
     "elastic: nodes come and go; failures are survived"},
};

constexpr UsageExample kExitCodes[] = {
    {"0", "every rank exited with 0"},
    {"n", "the first failed rank's own code, or 128 + the signal that ended it"},
    {"64", "usage"},
    {"69", "the other nodes could not be reached"},
    {"70", "internal error"},
    {"71", "the operating system refused (fork, file descriptors)"},
    {"75",
     "try again later: other nodes have not come in time, or the job was stopped and its ranks "
     "exited with 75"},
    {"78", "a configuration file is wrong"},
    {"125", "dtrun itself failed"},
    {"126, 127", "the program cannot be executed; there is no such program"},
    {"128 + n", "dtrun was stopped by signal n"},
    {"141", "nobody reads the standard output any more (--on-closed-output)"},
};

constexpr std::string_view kNotes[] = {
    "Options come before PROGRAM; everything after its name is the program's. ${local_rank} in the "
    "arguments becomes each rank's number on its node. $PYTHON_EXEC, or python3, with -u runs *.py "
    "programs.",
    "After a ':' stands another program of the same job, with --nproc_per_node, --wdir and -x of "
    "its own; all other options stand before the first one. DTRUN_APP_NUM is the number of a "
    "rank's program. After --, a ':' is an argument (docs/command_line.md).",
    "'-' and '_' are the same in names. A unique prefix is enough; prefixes among torchrun's "
    "options go first.",
    "Every option except --help, --version and --completion can be set by the environment, as "
    "PET_NAME (torchrun's) or DTRUN_NAME: 1 or 0 for an option without a value. The first source "
    "that has a value wins: the command line, PET_NAME, DTRUN_NAME, the file of --config, "
    "$XDG_CONFIG_HOME/dtrun/config (~/.config/dtrun/config), Slurm or mpirun. --print-config shows "
    "where each value came from.",
};

}  // namespace

std::string_view usage_intro() {
  return "dtrun starts a program once per rank, on one node or several, as torchrun does, and ends "
         "them all when one fails.";
}

std::span<const UsageExample> usage_examples() {
  return kExamples;
}

std::span<const UsageExample> exit_codes() {
  return kExitCodes;
}

std::span<const std::string_view> usage_notes() {
  return kNotes;
}

}  // namespace dtrun::launcher
