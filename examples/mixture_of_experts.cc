// Expert parallelism: each rank has some of the experts, and its own samples. A gate chooses an
// expert for each sample; the samples travel to their experts' ranks and back. The loss is the same
// on 1, 2 and 4 ranks.
//
//     dtrun --nproc_per_node=4 mixture_of_experts
#include <dtrun/dtrun.h>

#include <cstdint>
#include <vector>

using namespace dtrun;

namespace {

constexpr std::int64_t kExperts = 4, kSamples = 256, kWidth = 16, kSteps = 60;

/// Two numbers to two numbers.
nn::Sequential made_expert() {
  return nn::Sequential(nn::Linear(2, kWidth), nn::Tanh(), nn::Linear(kWidth, 2));
}

struct Experts : nn::Module {
  explicit Experts(DeviceMesh its_mesh) : mesh(std::move(its_mesh)), each(kExperts / mesh.size()) {
    // All ranks draw the numbers of all experts, and keep their own.
    for (std::int64_t i = 0; i < kExperts; ++i) {
      const nn::Sequential expert = made_expert();
      if (i / each == mesh.local_rank(0)) experts->push_back(expert);
    }
  }
  Tensor forward(const Tensor& x) override {
    const Tensor chances = softmax(gate(x), -1);
    const Tensor chosen = chances.detach().argmax(-1);
    // Rows in the order of their experts, which is that of the experts' ranks.
    const Tensor order = argsort(chosen, 0);
    const std::vector<std::int64_t> mine = rows_by_expert(chosen);
    // counts[r][i]: rows from rank r for this rank's expert i.
    const Tensor sent = tensor_from(mine, {kExperts}, DType::i64);
    const Tensor counts = zeros({kExperts}, {.dtype = DType::i64});
    dist::all_to_all_single(counts, sent);
    const std::vector<std::int64_t> theirs = counts.to_vector_i64();
    const std::vector<std::int64_t> to = by_rank(mine), from = by_rank(theirs);

    const Tensor here = all_to_all_rows(x[order], from, to, mesh);
    const Tensor back = all_to_all_rows(computed(here, theirs), to, from, mesh);
    const Tensor weight = gather(chances, 1, chosen.unsqueeze(1));
    return back[argsort(order, 0)] * weight;
  }

  const DeviceMesh mesh;
  const std::int64_t each;  ///< experts on a rank
  nn::Linear gate = register_module("gate", nn::Linear(2, kExperts));
  nn::ModuleList experts = register_module("experts", nn::ModuleList());

 private:
  static std::vector<std::int64_t> rows_by_expert(const Tensor& chosen) {
    std::vector<std::int64_t> rows(kExperts, 0);
    for (const std::int64_t expert : chosen.to_vector_i64())
      ++rows[static_cast<std::size_t>(expert)];
    return rows;
  }
  std::vector<std::int64_t> by_rank(const std::vector<std::int64_t>& rows) const {
    std::vector<std::int64_t> sums(static_cast<std::size_t>(mesh.size()), 0);
    for (std::size_t i = 0; i < rows.size(); ++i)
      sums[i / static_cast<std::size_t>(each)] += rows[i];
    return sums;
  }
  /// Rows lie by rank, then by expert; each expert gets its rows of all ranks at once.
  Tensor computed(const Tensor& rows, const std::vector<std::int64_t>& counts) {
    const Tensors pieces = split(rows, counts);
    Tensors results(pieces.size());
    for (std::int64_t i = 0; i < each; ++i) {
      Tensors its;
      std::vector<std::int64_t> sizes;
      for (std::size_t at = static_cast<std::size_t>(i); at < pieces.size();
           at += static_cast<std::size_t>(each)) {
        its.push_back(pieces[at]);
        sizes.push_back(counts[at]);
      }
      const Tensors parts = split(experts->at(i)(cat(its)), sizes);
      for (std::size_t k = 0; k < parts.size(); ++k)
        results[k * static_cast<std::size_t>(each) + static_cast<std::size_t>(i)] = parts[k];
    }
    return cat(results);
  }
};

}  // namespace

int main() {
  dist::init_process_group();
  const int ranks = dist::get_world_size(), rank = dist::get_rank();
  if (kExperts % ranks != 0) {
    throw Error(ErrorCode::kUsage, "mixture_of_experts on " + std::to_string(ranks) + " ranks",
                "each has as many of the 4 experts", "--nproc_per_node=1, 2 or 4");
  }
  manual_seed(1);
  Experts model(dist::init_device_mesh("cpu", {ranks}, {"ep"}));
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});

  // A function of four pieces, one for each quarter of the plane; each rank has some of the
  // samples.
  const Tensor all = randn({kSamples, 2}, RandomKey{.seed = 2});
  const Tensor x = all.narrow(0, rank * (kSamples / ranks), kSamples / ranks);
  const Tensor wanted =
      cat({sign(x.narrow(1, 0, 1)) * x.narrow(1, 1, 1), abs(x.narrow(1, 0, 1))}, 1);
  double loss = 0;
  for (int step = 1; step <= kSteps; ++step) {
    const Tensor part = sum(square(model(x) - wanted)) / static_cast<double>(kSamples);
    part.backward();
    // Experts have seen the samples of all ranks; the gate, which all ranks have, only its own.
    for (const Tensor& parameter : model.gate->parameters()) dist::all_reduce(parameter.grad());
    optimizer.step();
    optimizer.zero_grad();
    const Tensor total = part.detach().clone();
    dist::all_reduce(total);
    loss = total.item();
    if (rank == 0 && step % 20 == 0) print("step {:3}  loss {:.5f}", step, loss);
  }
  if (rank == 0) print("loss: {:.5f}", loss);
  dist::destroy_process_group();
}
