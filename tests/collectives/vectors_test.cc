// Every case of tests/vectors/collectives.jsonl over shared memory and over TCP, and every
// reduction against a plain computation in rank order, bit for bit the same on all ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "dtrun/tensor/ops.h"
#include "support/rank_threads.h"
#include "support/vector_file.h"

namespace dtrun::collectives {
namespace {

using tensors::DType;
using tensors::LocalTensor;
using test::numbers_of;
using test::sizes_of;
using test::VectorCase;
using Values = std::vector<double>;
using Counts = std::vector<std::int64_t>;

LocalTensor make(const Values& values, DType dtype) {
  return tensors::tensor_from(values, {static_cast<std::int64_t>(values.size())}, dtype);
}

/// 1-D pieces of those counts.
std::vector<LocalTensor> cut(const LocalTensor& whole, const Counts& counts) {
  return tensors::split(whole, counts, 0);
}
std::vector<LocalTensor> empty_pieces(const Counts& counts, DType dtype) {
  std::vector<LocalTensor> pieces;
  for (const std::int64_t count : counts) pieces.push_back(tensors::zeros({count}, {dtype}));
  return pieces;
}

/// One case on one rank.
class Case {
 public:
  Case(const VectorCase& fields, const ProcessGroup& group)
      : fields_(fields),
        group_(group),
        rank_(static_cast<std::size_t>(group.rank())),
        dtype_(tensors::parse_dtype(test::text_of(fields.at("dtype")))),
        input_(make(numbers_of(fields.at("inputs").at(rank_)), dtype_)) {}

  void run() {
    const std::string op = test::text_of(fields_.at("op"));
    if (op == "all_gather" || op == "gather") return gather(op == "gather");
    if (op == "all_reduce") return all_reduce();
    if (op == "reduce") return reduce();
    if (op == "broadcast") return broadcast();
    if (op == "scatter") return scatter();
    if (op == "reduce_scatter") return reduce_scatter();
    if (op == "all_to_all_single") return all_to_all();
    if (op == "send_recv_ring") return ring();
    FAIL() << "no such operation: " << op;
  }

 private:
  const boost::json::value& arg(const char* name) const { return fields_.at("args").at(name); }
  int root() const { return static_cast<int>(arg("root").as_int64()); }
  ReduceOp reduce_op() const { return parse_reduce_op(test::text_of(arg("reduce_op"))); }
  bool is_root() const { return group_.rank() == root(); }

  void expect(const LocalTensor& result) const {
    const Values expected = numbers_of(fields_.at("outputs").at(rank_));
    const Values values = result.to_vector();
    ASSERT_EQ(values.size(), expected.size());
    const bool exact = fields_.at("exact").as_bool();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(values[i])) << test::text_of(fields_.at("id"));
      } else if (exact) {
        EXPECT_EQ(values[i], expected[i]) << test::text_of(fields_.at("id"));
      } else {
        EXPECT_NEAR(values[i], expected[i], tolerance(expected[i]))
            << test::text_of(fields_.at("id"));
      }
    }
  }
  /// The table of the vectors' README.
  double tolerance(double value) const {
    switch (dtype_) {
      case DType::f64:
        return 1e-10 + 1e-9 * std::abs(value);
      case DType::f32:
        return 1e-5 + 2e-5 * std::abs(value);
      case DType::f16:
        return 3e-3 + 3e-3 * std::abs(value);
      case DType::bf16:
        return 2e-2 + 2e-2 * std::abs(value);
      default:
        return 0;
    }
  }
  void expect(const std::vector<LocalTensor>& pieces) const { expect(tensors::cat(pieces, 0)); }
  void expect_untouched() const {
    EXPECT_EQ(input_.to_vector(), numbers_of(fields_.at("inputs").at(rank_)));
  }

  void gather(bool to_root) {
    std::vector<LocalTensor> outputs;
    if (!to_root || is_root()) outputs = empty_pieces(sizes_of(arg("counts")), dtype_);
    if (to_root) {
      group_.gather(input_, outputs, root());
    } else {
      group_.all_gather(outputs, input_);
    }
    if (!outputs.empty()) expect(outputs);
  }
  void all_reduce() {
    group_.all_reduce(input_, reduce_op());
    expect(input_);
  }
  void reduce() {
    group_.reduce(input_, root(), reduce_op());
    if (is_root()) {
      expect(input_);
    } else {
      expect_untouched();
    }
  }
  void broadcast() {
    group_.broadcast(input_, root());
    expect(input_);
  }
  void scatter() {
    const Counts counts = sizes_of(arg("counts"));
    const LocalTensor output = tensors::zeros({counts[rank_]}, {dtype_});
    group_.scatter(output, is_root() ? cut(input_, counts) : std::vector<LocalTensor>(), root());
    expect(output);
  }
  void reduce_scatter() {
    const Counts counts = sizes_of(arg("counts"));
    const LocalTensor output = tensors::zeros({counts[rank_]}, {dtype_});
    group_.reduce_scatter(output, cut(input_, counts), reduce_op());
    expect(output);
  }
  void all_to_all() {
    const Counts from = sizes_of(arg("output_splits").at(rank_));
    const Counts to = sizes_of(arg("input_splits").at(rank_));
    const std::vector<LocalTensor> outputs = empty_pieces(from, dtype_);
    group_.all_to_all(outputs, cut(input_, to));
    expect(outputs);
    const LocalTensor whole =
        tensors::zeros({std::accumulate(from.begin(), from.end(), std::int64_t{0})}, {dtype_});
    group_.all_to_all_single(whole, input_, from, to);
    expect(whole);
  }
  void ring() {
    const int shift = static_cast<int>(arg("shift").as_int64());
    const int size = group_.size();
    const Values expected = numbers_of(fields_.at("outputs").at(rank_));
    const LocalTensor output =
        tensors::zeros({static_cast<std::int64_t>(expected.size())}, {dtype_});
    const int source = ((group_.rank() - shift) % size + size) % size;
    if (source == group_.rank()) {
      // A message to oneself is a copy in the file, and refused here.
      EXPECT_THROW(group_.irecv(output, source), base::Error);
      return expect(input_);
    }
    const Work receive = group_.irecv(output, source);
    group_.isend(input_, ((group_.rank() + shift) % size + size) % size).wait();
    receive.wait();
    expect(output);
  }

  const VectorCase& fields_;
  const ProcessGroup& group_;
  const std::size_t rank_;
  const DType dtype_;
  const LocalTensor input_;
};

class VectorsTest : public testing::TestWithParam<Transport> {};

TEST_P(VectorsTest, EveryCaseHasItsResultOnEveryRank) {
  const std::vector<VectorCase> cases = test::read_vector_file("collectives");
  test::expect_cases(cases.size(), 1015);
  std::map<int, std::vector<const VectorCase*>> by_world;
  for (const VectorCase& fields : cases)
    by_world[static_cast<int>(fields.at("world").as_int64())].push_back(&fields);
  for (const auto& [world, of_world] : by_world)
    test::run_ranks(world, {.transport = GetParam()}, [&list = of_world](const auto& group) {
      for (const VectorCase* fields : list) Case(*fields, group).run();
    });
}

/// Fractions whose sum depends on the order of adding.
Values awkward(int rank, std::int64_t count) {
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        1.0 / (3.0 + static_cast<double>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101));
  return values;
}

TEST_P(VectorsTest, AllRanksGetTheSameBitsInEveryRunAndByEveryWay) {
  for (const int size : {2, 3, 5, 8}) {
    std::mutex mutex;
    std::map<std::string, std::vector<std::byte>> first;
    const auto same = [&](const std::string& key, const LocalTensor& tensor) {
      const LocalTensor whole = tensor.contiguous();
      const auto* begin = static_cast<const std::byte*>(whole.data());
      const std::vector<std::byte> bytes(begin, begin + whole.bytes());
      const std::scoped_lock lock(mutex);
      EXPECT_EQ(first.emplace(key, bytes).first->second, bytes) << key;
    };
    test::run_ranks(size, {.transport = GetParam()}, [&](const ProcessGroup& group) {
      for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::product})
          for (const std::int64_t count : {std::int64_t{40}, std::int64_t{30011}}) {
            const std::string key = std::string(tensors::dtype_name(dtype)) +
                                    std::string(reduce_op_name(op)) + std::to_string(count);
            for (int run = 0; run < 2; ++run) {
              const LocalTensor all = make(awkward(group.rank(), count), dtype);
              group.all_reduce(all, op);
              same(key, all);
            }
            const LocalTensor at_root = make(awkward(group.rank(), count), dtype);
            group.reduce(at_root, size - 1, op);
            if (group.rank() == size - 1) same(key, at_root);
          }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, VectorsTest,
                         testing::Values(Transport::automatic, Transport::tcp),
                         [](const testing::TestParamInfo<Transport>& tested) {
                           return std::string(tested.param == Transport::tcp ? "Tcp" : "Automatic");
                         });

}  // namespace
}  // namespace dtrun::collectives
