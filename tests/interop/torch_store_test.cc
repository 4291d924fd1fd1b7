// Our store and PyTorch's, each server with the other's client, over both of its backends.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "dtrun/rendezvous/file_store.h"
#include "dtrun/rendezvous/prefix_store.h"
#include "rendezvous/served_store.h"
#include "rendezvous/store_promises.h"
#include "support/command.h"
#include "support/thrown_error.h"
#include "support/torch_home.h"

namespace dtrun::rendezvous {
namespace {

using base::ErrorCode;
using testing_support::Command;
using testing_support::CommandOptions;
using testing_support::CommandResult;
using testing_support::contains;
using testing_support::error_of;
using testing_support::run_command;

const std::string kScripts = DTRUN_SOURCE_DIR "/tests/interop";

base::Deadline late() {
  return base::Deadline::after(std::chrono::seconds(60));
}

TEST(TorchStoreTest, PyTorchsClientsUseDtrunStoreAndAreClosedWhereItHasAToken) {
  REQUIRE_TORCH(home);
  const std::string path = testing::TempDir() + "dtrun_store_torch." + std::to_string(::getpid());
  std::ofstream(path + ".token") << "a secret of enough letters";
  std::filesystem::permissions(path + ".token", std::filesystem::perms::owner_read);
  for (const bool has_token : {false, true}) {
    std::vector<std::string> words = {DTRUN_STORE_BINARY, "--port", "0", "--port-file", path};
    if (has_token) words.insert(words.end(), {"--token-file", path + ".token"});
    Command store(words);
    ASSERT_TRUE(store.wait_for_output("serving at")) << store.finish().describe();
    std::string port;
    std::ifstream(path) >> port;
    const std::string program =
        "import datetime, torch.distributed as d\ns = d.TCPStore('127.0.0.1', " + port +
        ", None, False, datetime.timedelta(seconds=3))\ns.set('k', 'v')\nassert s.get('k') == b'v'";
    const CommandResult client = run_command({home.python(), "-c", program});
    EXPECT_EQ(client.exit_code, has_token ? 1 : 0) << client.describe();
    EXPECT_EQ(contains(client.err, "DistNetworkError"), has_token) << client.describe();
    store.signal(SIGTERM);
    EXPECT_EQ(store.finish().exit_code, 0);
  }
  std::filesystem::remove(path + ".token");
}

TEST(TorchStoreTest, OurFileStoreAndPyTorchsUseOneFile) {
  REQUIRE_TORCH(home);
  const std::string path = testing::TempDir() + "dtrun_torch_store_" + std::to_string(::getpid());
  {
    const auto store = open_file_store({.path = path, .workers = 2});
    store->add("n", 7);
    store->set("gone", "1");
    store->set("c", "ours");
    Command torch({home.python(), kScripts + "/store_file.py", path});
    std::string bytes(256, '\0');
    for (int i = 0; i < 256; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<char>(i);
    EXPECT_EQ(store->get("from torch", late()), bytes);
    store->set("from dtrun", "2");
    EXPECT_EQ(store->get("done", late()), "");
    EXPECT_EQ(store->try_get("n"), "12");
    EXPECT_EQ(store->try_get("c"), "theirs");
    EXPECT_FALSE(store->check({"gone"}));
    store->set("bye", "");
    const CommandResult result = torch.finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_EQ(result.out, "met\n");
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path)) << "two workers have come and gone";
}

TEST(TorchStoreTest, FourPyTorchProcessesMeetAtOurServerAndReduce) {
  REQUIRE_TORCH(home);
  const ServedStore server;
  std::vector<std::unique_ptr<Command>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    CommandOptions options;
    options.environment = {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", "4"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", std::to_string(server.port())},
                           {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                           {"OMP_NUM_THREADS", "1"}};
    ranks.push_back(std::make_unique<Command>(
        std::vector<std::string>{home.python(), kScripts + "/gloo_job.py"}, options));
  }
  for (int rank = 0; rank < 4; ++rank) {
    const CommandResult result = ranks[static_cast<std::size_t>(rank)]->finish();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_EQ(result.out, "rank " + std::to_string(rank) + " of 4: [10.0, 10.0, 10.0] []\n");
  }
}

// PyTorch's server in a process of its own, for all tests of this program.
class TorchServer {
 public:
  TorchServer(const std::string& python, const std::string& backend)
      : port_file_(testing::TempDir() + "torch_store_port." + std::to_string(::getpid()) + backend),
        command_({python, kScripts + "/store_server.py", backend, port_file_}) {
    if (!command_.wait_for_output("serving")) ADD_FAILURE() << command_.finish().describe();
    std::ifstream(port_file_) >> port_;
    std::filesystem::remove(port_file_);
  }
  std::shared_ptr<Store> client() const {
    return connect_tcp_store({"127.0.0.1", port_, std::chrono::seconds(30)});
  }

 private:
  std::string port_file_;
  Command command_;
  std::uint16_t port_ = 0;
};

const TorchServer& torch_server(const std::string& backend) {
  static std::map<std::string, std::unique_ptr<TorchServer>> servers;
  std::unique_ptr<TorchServer>& server = servers[backend];
  if (!server)
    server = std::make_unique<TorchServer>(testing_support::torch_home().python(), backend);
  return *server;
}

// A fresh corner of the one server for each test; null where there is no PyTorch.
std::shared_ptr<Store> corner_of_torch_server() {
  if (testing_support::torch_home().folder.empty()) return nullptr;
  static int count = 0;
  return make_prefix_store("test" + std::to_string(++count), torch_server("libuv").client());
}

INSTANTIATE_TEST_SUITE_P(Torch, StorePromises,
                         testing::Values(StoreFactory{"Libuv", corner_of_torch_server}), name_of);

TEST(TorchStoreTest, OurClientGetsFromTheOlderBackendWhatThatHas) {
  REQUIRE_TORCH(home);
  const auto store = torch_server("poll").client();
  store->set("k", "v");
  store->set("empty", "");
  EXPECT_EQ(store->get("k", late()), "v");
  EXPECT_EQ(store->get("empty", late()), "");
  EXPECT_EQ(store->try_get("none"), std::nullopt);
  EXPECT_EQ(store->try_get("empty"), "");
  EXPECT_EQ(store->add("n", 5), 5);
  EXPECT_EQ(error_of([&] { store->add("k", 1); })->code(), ErrorCode::kProtocol);
  EXPECT_EQ(store->compare_set("c", "x", "y"), "x");
  EXPECT_EQ(store->compare_set("c", "", "y"), "y");
  store->append("k", "w");
  store->multi_set({{"a", "1"}, {"b", "2"}});
  EXPECT_EQ(store->multi_get({"b", "k"}, late()), (std::vector<std::string>{"2", "vw"}));
  EXPECT_FALSE(store->check({"a", "none"}));
  EXPECT_TRUE(store->delete_key("a"));
  const auto timeout = error_of([&] {
    store->wait({"k", "none"}, base::Deadline::after(std::chrono::milliseconds(30)));
  });
  ASSERT_TRUE(timeout);
  EXPECT_TRUE(timeout->summary().ends_with("ms, keys: /k, /none")) << timeout->what();
  EXPECT_EQ(store->num_keys(), 5);
  EXPECT_EQ(store->list_keys().size(), 5u);
  std::thread first([&] { store->barrier("meet", 2, late()); });
  store->barrier("meet", 2, late());
  first.join();
  const auto no_queues = error_of([&] { store->queue_push("q", "1"); });
  ASSERT_TRUE(no_queues);
  EXPECT_EQ(no_queues->code(), ErrorCode::kUnavailable);
  EXPECT_EQ(store->get("k", late()), "vw");
}

}  // namespace
}  // namespace dtrun::rendezvous
