// A module as text: PyTorch's repr.
#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <ostream>
#include <typeinfo>

#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor::nn {
namespace {

std::string indented(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '\n' ? "\n  " : std::string(1, c);
  return result;
}

}  // namespace

std::string Module::name() const {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 ? readable.get() : typeid(*this).name();
  // Of a template's arguments the namespaces stay.
  const std::size_t end = name.find('<');
  const std::size_t colons = name.rfind("::", end);
  if (colons != std::string::npos) name.erase(0, colons + 2);
  constexpr std::string_view kEnding = "Module";
  if (name.size() > kEnding.size() && name.ends_with(kEnding))
    name.resize(name.size() - kEnding.size());
  return name;
}

std::vector<std::string> Module::child_lines() const {
  std::vector<std::string> lines;
  for (const auto& [name, child] : children_) {
    lines.push_back("(" + name + "): " + child->to_string());
  }
  return lines;
}

std::string Module::to_string() const {
  const std::string own = extra_repr();
  const std::vector<std::string> children = child_lines();
  if (children.empty() && own.find('\n') == std::string::npos) return name() + "(" + own + ")";
  std::string text = name() + "(";
  if (!own.empty()) text += "\n  " + indented(own);
  for (const std::string& child : children) text += "\n  " + indented(child);
  return text + "\n)";
}

std::ostream& operator<<(std::ostream& out, const Module& module) {
  return out << module.to_string();
}

}  // namespace dtrun::dtensor::nn
