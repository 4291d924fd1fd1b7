// Span: a stretch of this thread's time, told to the thread's span observer. Without one it costs
// the look at a pointer. What a Trace is made of.
#pragma once

#include <cstdint>
#include <string_view>

namespace dtrun::dtensor {

class SpanObserver {
 public:
  enum class Kind : std::uint8_t {
    op,        ///< an operator's forward
    backward,  ///< a graph node's backward, with the hooks of its gradients
    module,    ///< a module's forward
    step,      ///< an optimizer's step
    wait,      ///< for communication that goes on meanwhile
  };

  SpanObserver() : outer_(innermost_) { innermost_ = this; }
  virtual ~SpanObserver() { innermost_ = outer_; }
  SpanObserver(const SpanObserver&) = delete;
  SpanObserver& operator=(const SpanObserver&) = delete;

  virtual void begin(Kind kind, std::string_view name) = 0;
  virtual void end() = 0;

  /// Of this thread; null as a rule.
  static SpanObserver* innermost() { return innermost_; }

 private:
  static constinit thread_local SpanObserver* innermost_;
  SpanObserver* const outer_;
};

class Span {
 public:
  using Kind = SpanObserver::Kind;
  Span(Kind kind, std::string_view name) : observer_(SpanObserver::innermost()) {
    if (observer_ != nullptr) [[unlikely]]
      observer_->begin(kind, name);
  }
  ~Span() {
    // An observer that has gone within the span, or come, has not heard of both ends.
    if (observer_ != nullptr && observer_ == SpanObserver::innermost()) [[unlikely]]
      observer_->end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  SpanObserver* const observer_;
};

}  // namespace dtrun::dtensor
