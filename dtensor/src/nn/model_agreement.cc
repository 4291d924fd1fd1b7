#include "nn/model_agreement.h"

#include <cstring>
#include <functional>
#include <sstream>
#include <utility>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using collectives::LocalTensor;
using tensors::DType;

std::string line_of(const char* kind, const std::string& name, const Tensor& tensor) {
  return std::string(kind) + " \"" + name + "\", " +
         std::string(tensors::dtype_short_name(tensor.dtype())) +
         tensors::shape_to_string(tensor.shape()) +
         (tensor.is_distributed() ? ", " + tensor.spec().to_string() : "") +
         (tensor.requires_grad() ? "" : ", without gradient") + "\n";
}

std::string text_of(const nn::Module& module) {
  std::string text;
  for (const auto& [name, tensor] : module.named_parameters())
    text += line_of("parameter", name, tensor);
  for (const auto& [name, tensor] : module.named_buffers()) text += line_of("buffer", name, tensor);
  return text;
}

LocalTensor letters(const std::string& text, tensors::Device device) {
  const LocalTensor all = tensors::zeros({static_cast<std::int64_t>(text.size())}, {DType::u8});
  std::memcpy(all.data(), text.data(), text.size());
  return all.to(device);
}

std::string text_from(const LocalTensor& all) {
  const LocalTensor here = all.to(tensors::kCpu);
  return std::string(here.data_as<char>(), static_cast<std::size_t>(here.numel()));
}

/// The first line that is not the same, of each.
std::pair<std::string, std::string> first_difference(const std::string& one,
                                                     const std::string& other) {
  std::istringstream lines(one), others(other);
  std::string line, other_line;
  do {
    if (!std::getline(lines, line)) line = "no more";
    if (!std::getline(others, other_line)) other_line = "no more";
  } while (line == other_line);
  return {line, other_line};
}

/// A word for each rank; equal where their texts are.
std::vector<std::int64_t> digests(const std::string& text, const ProcessGroup& group,
                                  tensors::Device device, const Tensor::Site& site) {
  const auto own = static_cast<std::int64_t>(std::hash<std::string>()(text) >> 2);
  const LocalTensor mine = tensors::full({2}, 0, {DType::i64});
  mine.data_as<std::int64_t>()[0] = own;
  mine.data_as<std::int64_t>()[1] = static_cast<std::int64_t>(text.size());
  const LocalTensor all = tensors::zeros({group.size(), 2}, {DType::i64, device});
  group.all_gather_into_tensor(all, mine.to(device).unsqueeze(0), {}, site);
  return all.to_vector_i64();
}

tensors::Device device_of(const nn::Module& module) {
  for (const auto& tensors : {module.parameters(), module.buffers()}) {
    if (!tensors.empty()) return tensors[0].device();
  }
  return tensors::kCpu;
}

}  // namespace

void check_same_model(const char* call, const nn::Module& module, const ProcessGroup& group,
                      const Tensor::Site& site, const std::string& more,
                      std::optional<tensors::Device> given) {
  const tensors::Device device = given.value_or(device_of(module));
  const std::string text = text_of(module) + "no more parameters and buffers\n" + more;
  const std::vector<std::int64_t> words = digests(text, group, device, site);
  int differs = 0;
  for (int rank = group.size() - 1; rank > 0; --rank) {
    const std::size_t at = 2 * static_cast<std::size_t>(rank);
    if (words[at] != words[0] || words[at + 1] != words[1]) differs = rank;
  }
  if (differs == 0) return;
  std::vector<LocalTensor> texts;
  for (int rank = 0; rank < group.size(); ++rank) {
    texts.push_back(
        tensors::zeros({words[2 * static_cast<std::size_t>(rank) + 1]}, {DType::u8, device}));
  }
  group.all_gather(texts, letters(text, device), {}, site);
  const auto other = static_cast<std::size_t>(differs);
  const auto [first, its] = first_difference(text_from(texts[0]), text_from(texts[other]));
  const auto rank_name = [&](std::size_t rank) {
    return "rank " + std::to_string(group.global_ranks()[rank]);
  };
  throw Error(ErrorCode::kDisagreement,
              std::string(call) + " of " + module.name() + ": the ranks' modules differ",
              rank_name(0) + " has " + first + "; " + rank_name(other) + " has " + its,
              "make the same module on all ranks; numbers may differ, the first rank's are taken");
}

}  // namespace dtrun::dtensor
