#include "dtrun/rendezvous/worker_env.h"

#include <gtest/gtest.h>

#include "support/thrown_error.h"

namespace dtrun::rendezvous {
namespace {

using base::Environment;
using base::ErrorCode;
using testing_support::contains;
using testing_support::error_of;

Environment by_hand() {
  Environment environment;
  environment.set("RANK", "1");
  environment.set("WORLD_SIZE", "4");
  environment.set("MASTER_ADDR", "n0");
  environment.set("MASTER_PORT", "29500");
  return environment;
}

std::optional<base::Error> error_with(const std::string& name, const std::string& value) {
  Environment environment = by_hand();
  environment.set(name, value);
  return error_of([&] { read_worker_env(environment); });
}

TEST(WorkerEnvTest, WhatIsWrittenReadsBackTheSame) {
  WorkerEnv worker;
  worker.rank = 5;
  worker.local_rank = 1;
  worker.world_size = 8;
  worker.local_world_size = 4;
  worker.group_rank = 1;
  worker.group_world_size = 2;
  worker.role_rank = 3;
  worker.role_world_size = 6;
  worker.role_name = "trainer";
  worker.master_addr = "fe80::1";
  worker.master_port = 65535;
  worker.restart_count = 2;
  worker.max_restarts = 3;
  worker.run_id = "job 7";
  worker.error_file = "logs/error.json";
  worker.job_page_fd = 9;
  Environment environment;
  write_worker_env(worker, environment);
  const WorkerEnv back = read_worker_env(environment);
  EXPECT_EQ(back.rank, 5);
  EXPECT_EQ(back.local_rank, 1);
  EXPECT_EQ(back.world_size, 8);
  EXPECT_EQ(back.local_world_size, 4);
  EXPECT_EQ(back.group_rank, 1);
  EXPECT_EQ(back.group_world_size, 2);
  EXPECT_EQ(back.role_rank, 3);
  EXPECT_EQ(back.role_world_size, 6);
  EXPECT_EQ(back.role_name, "trainer");
  EXPECT_EQ(back.master_addr, "fe80::1");
  EXPECT_EQ(back.master_port, 65535);
  EXPECT_EQ(back.restart_count, 2);
  EXPECT_EQ(back.max_restarts, 3);
  EXPECT_EQ(back.run_id, "job 7");
  EXPECT_TRUE(back.use_agent_store);
  EXPECT_EQ(back.error_file, "logs/error.json");
  EXPECT_EQ(back.job_page_fd, 9);
}

TEST(WorkerEnvTest, TheNamesAndValuesAreTorchruns) {
  WorkerEnv worker;
  worker.master_addr = "localhost";
  worker.master_port = 29400;
  Environment environment;
  write_worker_env(worker, environment);
  const std::map<std::string, std::string> expected = {
      {"GROUP_RANK", "0"},
      {"GROUP_WORLD_SIZE", "1"},
      {"LOCAL_RANK", "0"},
      {"LOCAL_WORLD_SIZE", "1"},
      {"MASTER_ADDR", "localhost"},
      {"MASTER_PORT", "29400"},
      {"RANK", "0"},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", "0"},
      {"ROLE_WORLD_SIZE", "1"},
      {"TORCHELASTIC_ERROR_FILE", ""},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_RUN_ID", "none"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"WORLD_SIZE", "1"},
  };
  EXPECT_EQ(environment.variables(), expected);
}

TEST(WorkerEnvTest, TheUsersNcclSettingIsKeptAndAForeignJobPageIsNot) {
  Environment environment;
  environment.set("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3");
  environment.set("DTRUN_JOB_PAGE_FD", "7");
  environment.set("DTRUN_JOB_PAGE_ID", "1:2");
  write_worker_env(WorkerEnv{}, environment);
  EXPECT_EQ(environment.get("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "3");
  EXPECT_FALSE(environment.contains("DTRUN_JOB_PAGE_FD"));
  EXPECT_FALSE(environment.contains("DTRUN_JOB_PAGE_ID"));
}

TEST(WorkerEnvTest, FourVariablesSetByHandAreEnough) {
  const WorkerEnv worker = read_worker_env(by_hand());
  EXPECT_EQ(worker.rank, 1);
  EXPECT_EQ(worker.local_rank, 1);
  EXPECT_EQ(worker.local_world_size, 4);
  EXPECT_EQ(worker.role_rank, 1);
  EXPECT_EQ(worker.group_world_size, 1);
  EXPECT_EQ(worker.job_page_fd, -1);
  EXPECT_FALSE(worker.use_agent_store);
}

TEST(WorkerEnvTest, OnlyPythonsTrueMeansAnAgentsStore) {
  Environment environment = by_hand();
  environment.set("TORCHELASTIC_USE_AGENT_STORE", "true");
  EXPECT_FALSE(read_worker_env(environment).use_agent_store);
  environment.set("TORCHELASTIC_USE_AGENT_STORE", "True");
  EXPECT_TRUE(read_worker_env(environment).use_agent_store);
}

TEST(WorkerEnvTest, AllThatIsMissingIsNamedAtOnceWithTheWayToStart) {
  Environment environment = by_hand();
  environment.unset("RANK");
  environment.set("MASTER_ADDR", "");
  environment.unset("MASTER_PORT");
  const auto error = error_of([&] { read_worker_env(environment); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kUsage);
  EXPECT_EQ(error->summary(), "the environment lacks RANK, MASTER_ADDR, MASTER_PORT");
  EXPECT_EQ(error->remedy(),
            "start me with `dtrun --nproc_per_node=N program`, or set these by hand (rank and "
            "world_size can also be arguments of init)");
}

TEST(WorkerEnvTest, RanksThatMeetElsewhereNeedNoMasterAddress) {
  Environment environment = by_hand();
  environment.unset("MASTER_ADDR");
  environment.unset("MASTER_PORT");
  const WorkerEnv worker = read_worker_env(environment, MasterAddress::optional);
  EXPECT_EQ(worker.rank, 1);
  EXPECT_EQ(worker.master_addr, "");
  EXPECT_EQ(worker.master_port, 0);
}

TEST(WorkerEnvTest, MpirunsNumbersCountWhereNobodyHasSetRank) {
  Environment open_mpi;
  for (const auto& [name, value] : {std::pair{"OMPI_COMM_WORLD_RANK", "5"},
                                    {"OMPI_COMM_WORLD_SIZE", "8"},
                                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}})
    open_mpi.set(name, value);
  const WorkerEnv worker = read_worker_env(open_mpi, MasterAddress::optional);
  EXPECT_EQ(worker.rank, 5);
  EXPECT_EQ(worker.world_size, 8);
  EXPECT_EQ(worker.local_rank, 1);
  EXPECT_EQ(worker.local_world_size, 4);

  Environment mpich;
  mpich.set("PMI_RANK", "2");
  mpich.set("PMI_SIZE", "3");
  EXPECT_EQ(read_worker_env(mpich, MasterAddress::optional).rank, 2);
  mpich.set("PMI_RANK", "x");
  EXPECT_EQ(error_of([&] { read_worker_env(mpich, MasterAddress::optional); })->summary(),
            "the environment has PMI_RANK=x");

  open_mpi.set("RANK", "0");
  EXPECT_EQ(error_of([&] { read_worker_env(open_mpi, MasterAddress::optional); })->summary(),
            "the environment lacks WORLD_SIZE");
}

TEST(WorkerEnvTest, MpirunsFolderCountsWhereAllRanksAreHereAndNobodySaysWhereToMeet) {
  Environment environment;
  EXPECT_EQ(mpirun_folder(environment), "");
  environment.set("PMIX_SERVER_TMPDIR", "/tmp/ompi.n0");
  EXPECT_EQ(mpirun_folder(environment), "");
  environment.set("OMPI_COMM_WORLD_SIZE", "4");
  environment.set("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  EXPECT_EQ(mpirun_folder(environment), "");
  environment.set("OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  EXPECT_EQ(mpirun_folder(environment), "/tmp/ompi.n0");
  for (const char* by_hand : {"RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    Environment other = environment;
    other.set(by_hand, "1");
    EXPECT_EQ(mpirun_folder(other), "");
  }
}

TEST(WorkerEnvTest, ABadNumberIsShownWithItsName) {
  for (const auto& [name, value] : {std::pair{"RANK", "one"},
                                    {"WORLD_SIZE", "0"},
                                    {"WORLD_SIZE", "4 "},
                                    {"LOCAL_RANK", "-1"},
                                    {"MASTER_PORT", "0"},
                                    {"MASTER_PORT", "65536"},
                                    {"DTRUN_JOB_PAGE_FD", "99999999999999999999"}}) {
    const auto error = error_with(name, value);
    ASSERT_TRUE(error) << name << "=" << value;
    EXPECT_EQ(error->code(), ErrorCode::kUsage);
    EXPECT_EQ(error->summary(), std::string("the environment has ") + name + "=" + value);
  }
}

TEST(WorkerEnvTest, NumbersThatContradictAreAnErrorThatNamesBoth) {
  EXPECT_EQ(error_with("RANK", "4")->summary(), "the environment has RANK=4, but WORLD_SIZE=4");
  EXPECT_TRUE(contains(error_with("LOCAL_RANK", "4")->summary(), "LOCAL_WORLD_SIZE=4"));
  EXPECT_TRUE(contains(error_with("GROUP_RANK", "1")->summary(), "GROUP_WORLD_SIZE=1"));
  EXPECT_EQ(error_with("LOCAL_WORLD_SIZE", "5")->summary(),
            "the environment has LOCAL_WORLD_SIZE=5, but WORLD_SIZE=4");
}

}  // namespace
}  // namespace dtrun::rendezvous
