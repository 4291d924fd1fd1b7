#include "runtime/dist_ranks.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <thread>

#include "dtrun/base/socket.h"

namespace dtrun::dist {

void run_uninitialized_ranks(int size,
                             const std::function<void(const InitProcessGroup& mine)>& body) {
  const int port = base::local_port(base::listen_tcp("127.0.0.1", 0).get());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      InitProcessGroup mine;
      mine.init_method = fmt::format("tcp://127.0.0.1:{}", port);
      mine.rank = rank;
      mine.world_size = size;
      mine.timeout = std::chrono::seconds(60);
      body(mine);
    });
  for (std::thread& thread : threads) thread.join();
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
