#include "runtime/dist_ranks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

namespace dtrun::dist {

void run_uninitialized_ranks(int size,
                             const std::function<void(const InitProcessGroup& mine)>& body) {
  std::string folder = testing::TempDir() + "dtrun_dist_XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) ::abort();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      InitProcessGroup mine;
      mine.init_method = "file://" + folder + "/store";
      mine.rank = rank;
      mine.world_size = size;
      mine.timeout = std::chrono::seconds(60);
      body(mine);
    });
  for (std::thread& thread : threads) thread.join();
  // The last of the ranks has removed the file.
  EXPECT_TRUE(std::filesystem::remove(folder));
}

std::vector<Ended> run_failing_dist_ranks(int size, const std::function<void(int rank)>& body) {
  std::vector<Ended> ended(static_cast<std::size_t>(size));
  run_uninitialized_ranks(size, [&](const InitProcessGroup& mine) {
    Ended& end = ended[static_cast<std::size_t>(mine.rank)];
    try {
      init_process_group(mine);
      body(mine.rank);
    } catch (const base::Error& error) {
      end.error = error;
    } catch (const std::exception& error) {
      end.other = error.what();
    }
    if (is_initialized()) destroy_process_group();
  });
  return ended;
}

void run_dist_ranks(int size, const std::function<void(int rank)>& body) {
  const std::vector<Ended> ended = run_failing_dist_ranks(size, body);
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    EXPECT_FALSE(ended[rank].error) << "rank " << rank << ": " << ended[rank].error->what();
    EXPECT_EQ(ended[rank].other, "") << "rank " << rank;
  }
}

}  // namespace dtrun::dist
