#include "tensor/golden_operations.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <optional>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::tensors {
namespace {

/// With its strides; to() would make it contiguous.
LocalTensor with_layout_on(const LocalTensor& tensor, Device device) {
  if (device.is_cpu()) return tensor;
  const std::int64_t bytes = static_cast<std::int64_t>(tensor.storage()->bytes());
  const LocalTensor all = LocalTensor(tensor.storage(), DType::u8, {bytes}, {1}).to(device);
  return LocalTensor(all.storage(), tensor.dtype(), tensor.shape(), tensor.strides(),
                     tensor.offset());
}

struct GoldenOperand {
  std::optional<Scalar> number;
  LocalTensor tensor;
};

GoldenOperand operand_of(const boost::json::value& fields, Device device) {
  const boost::json::value* number = fields.as_object().if_contains("number");
  if (number != nullptr && number->is_int64()) return {Scalar(number->as_int64()), {}};
  if (number != nullptr) return {Scalar(number->as_double()), {}};
  return {std::nullopt, with_layout_on(golden_tensor(fields), device)};
}

LocalTensor apply_binary(const std::string& op, const GoldenOperand& a, const GoldenOperand& b) {
  if (a.number) {
    if (op == "add") return *a.number + b.tensor;
    if (op == "sub") return *a.number - b.tensor;
    if (op == "mul") return *a.number * b.tensor;
    return *a.number / b.tensor;
  }
  if (b.number) {
    if (op == "add") return a.tensor + *b.number;
    if (op == "sub") return a.tensor - *b.number;
    if (op == "mul") return a.tensor * *b.number;
    return a.tensor / *b.number;
  }
  if (op == "add") return a.tensor + b.tensor;
  if (op == "sub") return a.tensor - b.tensor;
  if (op == "mul") return a.tensor * b.tensor;
  return a.tensor / b.tensor;
}

LocalTensor apply(const GoldenCase& golden, Device device) {
  const std::string op(golden.at("op").as_string());
  const GoldenOperand a = operand_of(golden.at("a"), device);
  if (op == "to") return a.tensor.to(parse_dtype(std::string(golden.at("dtype").as_string())));
  if (op == "sum") {
    std::vector<int> dims;
    for (const std::int64_t dim : golden_integers(golden.at("dims"))) {
      dims.push_back(static_cast<int>(dim));
    }
    return sum(a.tensor, dims, golden.at("keepdim").as_bool());
  }
  const GoldenOperand b = operand_of(golden.at("b"), device);
  return op == "matmul" ? matmul(a.tensor, b.tensor) : apply_binary(op, a, b);
}

bool same_element(double got, double expected, std::optional<double> tolerance) {
  if (std::isnan(expected)) return std::isnan(got);
  if (tolerance) return std::abs(got - expected) <= *tolerance * std::abs(expected);
  return std::bit_cast<std::uint64_t>(got) == std::bit_cast<std::uint64_t>(expected);
}

/// Empty when all is as it should be.
std::string difference(const LocalTensor& got, const LocalTensor& expected,
                       std::optional<double> tolerance) {
  if (got.dtype() != expected.dtype())
    return "the dtype is " + std::string(dtype_name(got.dtype()));
  if (got.shape() != expected.shape()) return "the shape is " + shape_to_string(got.shape());
  if (!is_floating_point(got.dtype())) {
    return got.to_vector_i64() == expected.to_vector_i64() ? "" : "got " + got.to_string();
  }
  const std::vector<double> got_values = got.to_vector();
  const std::vector<double> expected_values = expected.to_vector();
  for (std::size_t i = 0; i < got_values.size(); ++i) {
    if (same_element(got_values[i], expected_values[i], tolerance)) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(got_values[i]) + ", not " +
           std::to_string(expected_values[i]);
  }
  return "";
}

}  // namespace

std::string golden_outcome(const GoldenCase& golden, Device device) {
  std::optional<double> tolerance;
  if (const boost::json::value* value = golden.if_contains("tolerance")) {
    tolerance = value->to_number<double>();
  }
  const bool refused = golden.contains("error");
  try {
    const LocalTensor got = apply(golden, device);
    if (refused) return "no error";
    return difference(got, golden_tensor(golden.at("result")), tolerance);
  } catch (const base::Error& error) {
    return refused && error.code() == base::ErrorCode::kInvalidArgument ? "" : error.what();
  }
}

namespace {

std::string describe(const boost::json::value& operand) {
  const boost::json::object& fields = operand.as_object();
  if (fields.contains("number")) return std::to_string(fields.at("number").to_number<double>());
  return golden_tensor(operand).to_string();
}

}  // namespace

void expect_golden_operations(Device device) {
  const std::vector<GoldenCase> cases = read_golden_file("tensor_ops");
  ASSERT_GE(cases.size(), 1000u);
  int wrong = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string problem = golden_outcome(cases[i], device);
    if (problem.empty()) continue;
    ADD_FAILURE() << "case " << i << ": " << std::string(cases[i].at("op").as_string()) << "\na "
                  << describe(cases[i].at("a")) << "\nb "
                  << (cases[i].contains("b") ? describe(cases[i].at("b")) : "") << "\n"
                  << problem;
    ASSERT_LT(++wrong, 10) << "and more";
  }
}

}  // namespace dtrun::tensors
