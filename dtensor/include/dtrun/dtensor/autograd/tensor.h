// Tensor: what users hold: numbers on one rank, or one global tensor of which every rank of a mesh
// holds a part; with a place in the graph that gradients flow back through, where one is wanted. A
// handle of eight bytes: copies are the same tensor. Calls that communicate are collective over the
// mesh. One graph is one thread's; tensors without one may be read by several.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dtrun/base/call_site.h"
#include "dtrun/base/counted.h"
#include "dtrun/base/small_blocks.h"
#include "dtrun/dtensor/autograd/element_methods.h"
#include "dtrun/dtensor/autograd/in_place_methods.h"
#include "dtrun/dtensor/autograd/place_methods.h"
#include "dtrun/dtensor/autograd/reduction_methods.h"
#include "dtrun/dtensor/autograd/tensor_options.h"
#include "dtrun/dtensor/layout/placement.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::dtensor {

using tensors::Device;
using tensors::DType;
using tensors::LocalTensor;

class Deferred;
class KeptCrossing;
class Node;
class PendingTensor;
class RepeatedMove;
class ShardingSpec;
struct AskedMove;

/// Most operators are methods as well: those of the bases, which hold nothing.
class Tensor : public ElementMethods,
               public InPlaceMethods,
               public PlaceMethods,
               public ReductionMethods {
 public:
  /// An undefined tensor: defined(), assignment and destruction are allowed. All else throws Error
  /// kInvalidArgument.
  Tensor() = default;
  Tensor(LocalTensor local);  // NOLINT: a rank's own numbers are a tensor
  /// @param local exactly the shape of spec.local_box(), and its dtype (DT_CHECK); not looked at
  /// outside of the mesh
  Tensor(Spec spec, LocalTensor local);
  /// What a rank outside of the spec's mesh has of a tensor.
  static Tensor outside(Spec spec, Device device);

  using FromLocal = FromLocalOptions;
  /// Where the program calls what may communicate: errors name the line.
  using Site = base::CallSite;
  /// No communication without run_check. @throws Error kInvalidArgument when local is not this
  /// rank's box of the given shape
  static Tensor from_local(const Tensor& local, const DeviceMesh& mesh,
                           const Placements& placements, FromLocal options = {},
                           Site site = Site::current());

  /// ColossalAI's way to distribute_tensor(): the mesh's first rank's elements. Collective.
  Tensor(const Tensor& whole, const DeviceMesh& mesh, const ShardingSpec& sharding_spec,
         Site site = Site::current());

  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  ~Tensor() = default;
  /// x[0] = 3 writes the elements that the expression shows. @throws Error where it shows nobody's
  void operator=(Scalar value) && { shown().fill_(value); }
  void operator=(const Tensor& source) && { shown().copy_(source); }

  bool defined() const { return static_cast<bool>(body_); }
  /// Of the whole tensor.
  const Shape& shape() const { return body().spec ? body().spec.shape() : body().local.shape(); }
  std::int64_t size(int dim) const;
  int dim() const { return static_cast<int>(shape().size()); }
  std::int64_t numel() const { return tensors::numel(shape()); }
  DType dtype() const { return body().local.dtype(); }
  Device device() const { return body().local.device(); }

  // On a mesh.
  /// Made within nn::MetaScope, and without memory so far: its numbers cannot be used.
  bool is_deferred() const { return body().deferred != nullptr; }
  bool is_distributed() const { return static_cast<bool>(body().spec); }
  /// None of a local tensor.
  const Spec& spec() const { return body().spec; }
  /// @throws Error kInvalidArgument for a local tensor, as placements()
  DeviceMesh device_mesh() const;
  const Placements& placements() const;
  /// What this rank holds, without a mesh; a local tensor itself. Gradients flow: those of the
  /// ranks lie as this tensor's elements, or, where these are Partial, are equal along the axis.
  Tensor to_local() const;
  /// @param grad_placements how the ranks' gradients lie: Partial() where each rank uses what all
  /// have for a part of the result. @throws Error kInvalidArgument unless they are cut alike
  Tensor to_local(const Placements& grad_placements) const;
  /// The whole tensor on every rank. Collective.
  Tensor full_tensor(Site site = Site::current()) const;
  Tensor full_tensor(const Placements& grad_placements, Site site = Site::current()) const;
  /// The same, by ColossalAI's name.
  Tensor to_global(Site site = Site::current()) const { return full_tensor(site); }
  /// @throws Error kInvalidArgument for a local tensor, and a Partial one
  ShardingSpec sharding_spec() const;
  /// Any placements to any placements on the same mesh. Collective. Target Partial keeps the value
  /// on the first rank of the axis, or each chunk on the rank that has it, and the neutral element
  /// elsewhere (avg: the value everywhere). @throws Error kInvalidArgument
  Tensor redistribute(const Placements& placements, const ShardOrder& order = no_order(),
                      Site site = Site::current()) const;
  /// The same, of placements that stand in braces: a repeated call makes no list of them.
  Tensor redistribute(std::initializer_list<Placement> placements,
                      const ShardOrder& order = no_order(), Site site = Site::current()) const;
  /// To any mesh. What the ranks of both meshes lack goes from one to the other; ranks outside of
  /// both have nothing to do. Collective over the ranks of both. @throws Error kInvalidArgument
  /// where no group has all these ranks
  Tensor redistribute(const DeviceMesh& mesh, const Placements& placements,
                      const ShardOrder& order = no_order(), Site site = Site::current()) const;
  Tensor redistribute(const DeviceMesh& mesh, std::initializer_list<Placement> placements,
                      const ShardOrder& order = no_order(), Site site = Site::current()) const;
  /// The same while the program goes on, until wait() of what it gives (autograd/pending_tensor.h).
  /// This tensor's elements are not to be written to before.
  PendingTensor redistribute_async(const Placements& placements, const ShardOrder& order = {},
                                   Site site = Site::current()) const;
  PendingTensor redistribute_async(const DeviceMesh& mesh, const Placements& placements,
                                   const ShardOrder& order = {}, Site site = Site::current()) const;

  // Elements of a local tensor. @throws Error kInvalidArgument for a distributed one
  /// What kernels and collectives take.
  operator const LocalTensor&() const& { return plain_local(); }  // NOLINT
  operator LocalTensor() const&& { return plain_local(); }        // NOLINT: outlives the temporary
  const LocalTensor& plain_local() const;
  /// What this rank holds, wherever the rest lies. No gradient flows.
  const LocalTensor& local() const {
    if (is_deferred()) [[unlikely]]
      refuse_deferred_use();
    return body().local;
  }
  void* data() const { return elements().data(); }
  template <typename T>
  T* data_as() const {
    return elements().data_as<T>();
  }
  void* data_ptr() const { return data(); }
  /// @throws Error kInvalidArgument where the elements are of another type
  template <typename T>
  T* data_ptr() const {
    return static_cast<T*>(checked_data(tensors::kDTypeOf<T>));
  }
  /// The only element, converted; collective where it is not whole on this rank.
  double item(Site site = Site::current()) const;
  /// All elements in row-major order; collective where they are not whole on this rank.
  std::vector<double> to_vector(Site site = Site::current()) const;
  std::vector<std::int64_t> to_vector_i64(Site site = Site::current()) const;
  bool is_contiguous() const { return elements().is_contiguous(); }

  // Gradients.
  bool requires_grad() const { return static_cast<bool>(body().producer); }
  /// A leaf whose gradient backward() fills; `false` takes it out of the graph.
  /// @throws Error kInvalidArgument for integers, and for a tensor that an operation has made
  const Tensor& requires_grad_(bool requires_grad = true) const;
  /// No operation has made it, or none whose gradient is wanted.
  bool is_leaf() const;
  /// Undefined where there is none yet. Of a leaf, or one that retain_grad() was said of.
  Tensor grad() const;
  void set_grad(const Tensor& grad) const;
  /// This tensor, and all its handles, become those numbers, of whatever dtype, device and layout;
  /// elements are shared. For parameters that move while others hold them. @throws Error
  /// kInvalidArgument for what an operation has made, and for a grad() that would not fit any more
  void set_data(const Tensor& data) const;
  /// This tensor's gradient is kept, too.
  void retain_grad() const;
  /// The same numbers, outside the graph.
  Tensor detach() const;
  /// Fills grad() of all leaves that this tensor was made of, adding to what is there.
  /// @param gradient of this tensor; not given: one, of a tensor with one element
  /// @throws Error kInvalidArgument, also for a graph that was gone through already
  void backward(BackwardOptions options = {}) const;
  void backward(const Tensor& gradient, BackwardOptions options = {}) const;
  /// Called with the gradient of this tensor when it is whole; what it returns, if defined, takes
  /// its place.
  void register_hook(std::function<Tensor(const Tensor& gradient)> hook) const;
  /// Called for a leaf when its grad() has been added to.
  void register_post_accumulate_grad_hook(std::function<void(const Tensor& leaf)> hook) const;
  std::string grad_fn() const;  ///< "AddBackward"; empty for a leaf

  // Views, of local tensors and of distributed ones. Errors: kInvalidArgument.
  Tensor view(const Shape& shape) const;
  Tensor reshape(const Shape& shape) const;
  Tensor transpose(int dim0, int dim1) const;
  Tensor t() const;  ///< of at most two dims
  Tensor permute(const std::vector<int>& dims) const;
  Tensor unsqueeze(int dim) const;
  Tensor squeeze(int dim) const;
  Tensor expand(const Shape& shape) const;
  Tensor slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const;
  Tensor narrow(int dim, std::int64_t start, std::int64_t length) const;
  Tensor select(int dim, std::int64_t index) const;
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  Tensor operator[](const Tensor& positions) const;  ///< index(), in ops/index.h; also of a mask

  // Copies.
  Tensor contiguous() const;
  Tensor clone() const;
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;

  /// A local one as PyTorch's str(tensor); a distributed one as its DTensor:
  /// "DTensor(local_tensor=tensor([0., 1.]), device_mesh=DeviceMesh(...),
  /// placements=(Shard(dim=0),))".
  std::string to_string() const;

  /// The same handle, not the same numbers.
  friend bool same(const Tensor& a, const Tensor& b) { return a.body_ == b.body_; }

 private:
  friend class Deferred;
  friend class Graph;
  /// Whose elements a recorded tensor shows besides its own.
  enum class View : std::uint8_t { none, of_leaf, of_result };
  struct Body : base::Count, base::small_blocks::Object<Body> {
    static void destroy(Body* body) noexcept;
    Body(LocalTensor its_local, Spec its_spec);
    ~Body();

    LocalTensor local;
    Spec spec;
    std::unique_ptr<Deferred> deferred;  ///< as a rule none
    base::Counted<Node> producer;        ///< none: no gradient is wanted
    std::uint32_t output = 0;            ///< which of the producer's
    View view = View::none;
    bool is_copy = false;       ///< of what this view of a distributed tensor was to show
    std::uint32_t version = 0;  ///< of the elements, when the view was made
    /// The marks of the last four specs that moves led to which were not `repeated`: a tensor that
    /// never moves twice keeps no more than that.
    mutable std::atomic<std::uint64_t> moved_to = 0;
    mutable std::atomic<const RepeatedMove*> repeated = nullptr;  ///< a list, owned
    /// No other thread is in a move of the tensor.
    void forget_moves();
  };

  /// A repeated move takes less time than to make a map.
  static const ShardOrder& no_order() {
    static const ShardOrder none;
    return none;
  }
  const Body& body() const {
    if (!body_) [[unlikely]]
      refuse_undefined_use();
    return *body_;
  }
  [[noreturn]] static void refuse_undefined_use();
  [[noreturn]] void refuse_deferred_use() const;
  const LocalTensor& elements() const {
    body();
    return plain_local();
  }
  void* checked_data(DType wanted) const;
  /// Null unless this tensor keeps the redistribution as a repeated one.
  const AskedMove* repeated_move(std::span<const Placement> placements) const;
  Tensor moved_by(const AskedMove& move, Site site) const;
  /// The same of a move to another mesh.
  const KeptCrossing* repeated_move(const DeviceMesh& mesh,
                                    std::span<const Placement> placements) const;
  Tensor moved_by(const KeptCrossing& crossing, Site site) const;
  /// Keeps the first few moves that come again within four. No communication. @param move an
  /// AskedMove or AskedCrossing
  template <typename Move>
  void note_move(const Placements& placements, const Move& move) const;
  /// Itself, unless nobody else has its elements.
  const Tensor& shown() const;
  base::Counted<Body> body_;
};
static_assert(sizeof(Tensor) == sizeof(void*));

/// The seeds' name.
using DTensor = Tensor;

std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace dtrun::dtensor
