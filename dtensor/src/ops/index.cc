// Picking and placing along one dim. Where ranks hold different stretches of it, each picks what it
// has and gives -0 for the rest, and the results add up; each places what falls into its stretch.
#include "dtrun/dtensor/ops/index.h"

#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"
#include "dtrun/tensor/shapes_only.h"
#include "move/move_observer.h"
#include "move/neutral.h"
#include "ops/elementwise.h"
#include "ops/index_rows.h"
#include "ops/named_dim.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {
namespace {

struct IndexedDim {
  int dim;
};
void append_key(CallKey& key, const IndexedDim& a) {
  key.push_back(a.dim);
}
/// Where the tensor lies that a gradient is made for.
struct Origin {
  Spec spec;
};
using IndexContext = Context<IndexedDim, None>;
using PickContext = Context<IndexedDim, Origin>;

Tensor add_at_rows(const Tensor& table, const Tensor& positions, const Tensor& rows);

/// What the gradients of picked elements are added to.
template <typename A>
Tensor zero_like_picked_from(const Context<A, Origin>& c) {
  const Spec& spec = c.numbers().spec;
  if (!spec) return Tensor(tensors::zeros(c.shape(0), {c.dtype(0), c.grad().device()}));
  const Spec whole =
      make_spec(spec.mesh(), without_partials(spec.layout()), c.shape(0), c.dtype(0));
  return Tensor(whole, tensors::zeros(whole.local_box().shape, {c.dtype(0), c.grad().device()}));
}

/// What a sum of the ranks' parts has from those without the element: -0 leaves -0 as it is.
LocalTensor no_part(const Shape& shape, const LocalTensor& of) {
  return tensors::full(shape, tensors::is_floating_point(of.dtype()) ? Scalar(-0.0) : Scalar(0),
                       {of.dtype(), of.device()});
}

/// Positions in a rank's stretch of the dim, and which of them are.
struct Stretch {
  LocalTensor index;
  LocalTensor is_here;  ///< undefined where all are
  bool empty = false;   ///< the rank holds nothing of the dim

  LocalTensor or_none(const LocalTensor& picked) const {
    return or_else(picked, no_part({}, picked));
  }
  LocalTensor or_else(const LocalTensor& picked, const LocalTensor& none) const {
    return is_here.defined() ? tensors::where(spread(picked), picked, none) : picked;
  }
  /// The mask as a view beside slices, whose positions stand along `slice_dim`.
  int slice_dim = -1;
  LocalTensor spread(const LocalTensor& beside) const {
    if (slice_dim < 0) return is_here;
    Shape shape(beside.shape().size(), 1);
    shape[static_cast<std::size_t>(slice_dim)] = is_here.numel();
    return is_here.view(shape);
  }
};

/// @param slice_dim -1: the index is as large as what is picked
Stretch stretch_of(std::string_view op, const LocalTensor& index, const LocalTensor& a, int dim,
                   const Site& site, int slice_dim = -1) {
  if (!site.output || a.dim() == 0) return {index, {}};
  const auto d = static_cast<std::size_t>(dim);
  const std::int64_t whole = site.inputs[0].shape()[d], own = a.shape()[d];
  if (own == whole) return {index, {}};
  tensors::check_positions(op, index, dim, whole);
  const LocalTensor here = index - site.inputs[0].local_box().offsets[d];
  const LocalTensor is_here = tensors::logical_and(tensors::ge(here, 0), tensors::lt(here, own));
  return {tensors::where(is_here, here, 0), is_here, own == 0, slice_dim};
}

void require_index(std::string_view op, const Meta& index) {
  if (index.dtype == DType::i64) return;
  throw base::Error(
      base::ErrorCode::kInvalidArgument,
      std::string(op) + " with " + std::string(tensors::dtype_name(index.dtype)) + " positions",
      "positions are int64 or int32", "to(DType::i64)");
}

// --- Slices.

Meta selected(Metas in, const IndexedDim& a) {
  require_index("index_select", in[1]);
  Meta meta = in[0];
  const std::int64_t count = tensors::numel(in[1].shape);
  if (!meta.shape.empty()) meta.shape[static_cast<std::size_t>(a.dim)] = count;
  return meta;
}

/// A letter for the positions; that of the dim itself is the picked tensor's alone.
void select_rules(Rules& r, Metas in, const IndexedDim& a) {
  const Rules::Indices each = Rules::each_dim(in[0].shape);
  const int positions = static_cast<int>(each.size());
  Rules::Indices output = each;
  if (!each.empty()) output[static_cast<std::size_t>(a.dim)] = positions;
  const Rules::Indices list(in[1].shape.size(), each.empty() ? sharding::kBroadcast : positions);
  r.indices({each, list}, output).cut_all().rearranges(0);
}

constexpr Op<IndexedDim, Origin> kIndexSelect{
    .name = "index_select",
    .meta = selected,
    .rules = select_rules,
    .local = [](Locals in, const IndexedDim& a, const Origin&, const Site& site) -> LocalTensor {
      const Stretch part = stretch_of("index_select", in[1], in[0], a.dim, site, a.dim);
      if (part.empty) {
        return no_part(site.output.local_box().shape, in[0]);
      }
      return part.or_none(tensors::index_select(in[0], a.dim, part.index));
    },
    .backward = [](const PickContext& c) -> Tensors {
      return {index_add(zero_like_picked_from(c), c.attributes().dim, c.input(1), c.grad()),
              Tensor()};
    },
    .saves = saves_input(1),
    .list = 1};

/// The dim of the positions is whole in index and source; what is added to may be cut along it.
void add_slices_rules(Rules& r, Metas in, const IndexedDim& a) {
  const Rules::Indices each = Rules::each_dim(in[0].shape);
  Rules::Indices source = each;
  if (!each.empty()) source[static_cast<std::size_t>(a.dim)] = sharding::kBroadcast;
  r.indices({each, Rules::Indices(in[1].shape.size(), sharding::kBroadcast), source}, each)
      .cut_all();
  if (!each.empty() && in[1].shape.size() == 1) {
    r.also({Partial(), Shard(0), Shard(a.dim)}, Partial());
  }
}

Meta same_as_target(Metas in, const IndexedDim&) {
  require_index("index_add", in[1]);
  if (in[0].shape.size() != in[2].shape.size()) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "index_add of " + tensors::shape_to_string(in[2].shape) + " into " +
                          tensors::shape_to_string(in[0].shape),
                      "the source has another number of dims", "reshape() it");
  }
  if (in[0].dtype == in[2].dtype) return in[0];
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    std::string("adding ") + std::string(tensors::dtype_name(in[2].dtype)) +
                        " to " + std::string(tensors::dtype_name(in[0].dtype)) + " at positions",
                    "both have one dtype", "to()");
}

constexpr Op<IndexedDim, Number> kIndexAdd{
    .name = "index_add",
    .meta = same_as_target,
    .rules = add_slices_rules,
    .local = [](Locals in, const IndexedDim& a, const Number& v, const Site& site) -> LocalTensor {
      const Stretch part = stretch_of("index_add", in[1], in[0], a.dim, site, a.dim);
      if (part.empty) return in[0].clone();
      return tensors::index_add(in[0], a.dim, part.index, part.or_none(in[2]), v.value);
    },
    .backward = [](const Context<IndexedDim, Number>& c) -> Tensors {
      const Tensor g = c.grad();
      if (!c.needs(2)) return {g, Tensor(), Tensor()};
      return {g, Tensor(), index_select(g, c.attributes().dim, c.input(1)) * c.numbers().value};
    },
    .saves = saves_input(1),
    .list = 1};

// --- Rows.

Shape with_positions(const Shape& positions, const Shape& a) {
  Shape shape = positions;
  for (std::size_t d = 1; d < a.size(); ++d) shape.push_back(a[d]);
  return shape;
}

/// The letters of the positions stand behind those of the table, of which the first is its own.
struct RowLetters {
  Rules::Indices table, positions, rows;
  RowLetters(const Meta& of_table, const Meta& of_positions)
      : table(Rules::each_dim(of_table.shape)) {
    for (std::size_t d = 0; d < of_positions.shape.size(); ++d)
      positions.push_back(static_cast<int>(table.size() + d));
    rows = positions;
    rows.insert(rows.end(), table.begin() + 1, table.end());
  }
};

LocalTensor listed(const LocalTensor& positions) {
  return positions.reshape({positions.numel()});
}

/// What the gradients of rows are added to. Where ranks have those of different positions, each
/// adds its own.
Tensor zero_table(const Context<None, Origin>& c, int position_dims) {
  const Spec& spec = c.numbers().spec;
  if (!spec) return zero_like_picked_from(c);
  Layout layout = without_partials(spec.layout());
  const Placements of_rows = c.grad().placements();
  for (std::size_t axis = 0; axis < of_rows.size(); ++axis) {
    if (of_rows[axis].is_shard() && of_rows[axis].dim() < position_dims)
      layout.set(axis, Partial());
  }
  const Spec parts = make_spec(spec.mesh(), layout, c.shape(0), c.dtype(0));
  return Tensor(parts, tensors::zeros(parts.local_box().shape, {c.dtype(0), c.grad().device()}));
}

constexpr Op<None, Origin> kRowsAt{
    .name = "index",
    .meta = [](Metas in, const None&) -> Meta {
      require_index("index", in[1]);
      return {with_positions(in[1].shape, in[0].shape), in[0].dtype};
    },
    .rules =
        [](Rules& r, Metas in, const None&) {
          const RowLetters letters(in[0], in[1]);
          r.indices({letters.table, letters.positions}, letters.rows).cut_all().rearranges(0);
        },
    .local = [](Locals in, const None&, const Origin&, const Site& site) -> LocalTensor {
      const Shape shape = with_positions(in[1].shape(), in[0].shape());
      const Stretch part = stretch_of("index", listed(in[1]), in[0], 0, site, 0);
      if (part.empty) return no_part(shape, in[0]);
      return part.or_none(tensors::index_select(in[0], 0, part.index)).reshape(shape);
    },
    .backward = [](const Context<None, Origin>& c) -> Tensors {
      const Tensor positions = c.input(1);
      return {add_at_rows(zero_table(c, positions.dim()), positions, c.grad()), Tensor()};
    },
    .saves = saves_input(1),
    .list = 1};

/// Into a table, positions, rows -> the table.
constexpr Op<> kAddAtRows{
    .name = "index_backward",
    .meta = [](Metas in, const None&) { return in[0]; },
    .rules =
        [](Rules& r, Metas in, const None&) {
          const RowLetters letters(in[0], in[1]);
          const std::size_t dims = letters.positions.size();
          Rules::Indices rows = letters.rows;
          std::fill_n(rows.begin(), dims, sharding::kBroadcast);
          r.indices({letters.table, Rules::Indices(dims, sharding::kBroadcast), rows},
                    letters.table)
              .cut_all();
          for (int d = 0; d < static_cast<int>(dims); ++d)
            r.also({Partial(), Shard(d), Shard(d)}, Partial());
        },
    .local = [](Locals in, const None&, const None&, const Site& site) -> LocalTensor {
      const Stretch part = stretch_of("index", listed(in[1]), in[0], 0, site, 0);
      if (part.empty) return in[0].clone();
      Shape rows = in[0].shape();
      rows[0] = in[1].numel();
      return tensors::index_add(in[0], 0, part.index, part.or_none(in[2].reshape(rows)));
    },
    .backward = [](const Context<None, None>& c) -> Tensors {
      return {c.grad(), Tensor(), c.needs(2) ? rows_at(c.grad(), c.input(1)) : Tensor()};
    },
    .saves = saves_input(1),
    .list = 1};

Tensor add_at_rows(const Tensor& table, const Tensor& positions, const Tensor& rows) {
  const Tensor* const inputs[] = {&table, &positions, &rows};
  return call(kAddAtRows, std::span<const Tensor* const>(inputs));
}

// --- Elements.

/// The dims that index and tensor have in common, and are as large in both, may be cut.
Rules::Indices shared_dims(Metas in, int dim, std::span<const std::size_t> beside) {
  Rules::Indices each = Rules::each_dim(in[0].shape);
  for (const int d : Rules::each_dim(in[0].shape)) {
    const auto place = static_cast<std::size_t>(d);
    for (const std::size_t other : beside) {
      if (d != dim && in[other].shape[place] != in[0].shape[place])
        each[place] = sharding::kBroadcast;
    }
  }
  return each;
}

void require_dims(std::string_view op, Metas in) {
  require_index(op, in[1]);
  if (in[0].shape.size() == in[1].shape.size()) return;
  throw base::Error(
      base::ErrorCode::kInvalidArgument,
      std::string(op) + " of a tensor of shape " + tensors::shape_to_string(in[0].shape) +
          " with positions of shape " + tensors::shape_to_string(in[1].shape),
      "they have as many dims, and are no larger in the others", "unsqueeze() and expand() them");
}

constexpr Op<IndexedDim, Origin> kGather{
    .name = "gather",
    .meta = [](Metas in, const IndexedDim&) -> Meta {
      require_dims("gather", in);
      return {in[1].shape, in[0].dtype};
    },
    .rules =
        [](Rules& r, Metas in, const IndexedDim& a) {
          constexpr std::size_t kIndex[] = {1};
          const Rules::Indices source = shared_dims(in, a.dim, kIndex);
          Rules::Indices index = source;
          if (!index.empty()) {
            index[static_cast<std::size_t>(a.dim)] = static_cast<int>(index.size());
          }
          r.indices({source, index}, index).cut_all().rearranges(0);
        },
    .local = [](Locals in, const IndexedDim& a, const Origin&, const Site& site) -> LocalTensor {
      const Stretch part = stretch_of("gather", in[1], in[0], a.dim, site);
      if (part.empty) return no_part(in[1].shape(), in[0]);
      return part.or_none(tensors::gather(in[0], a.dim, part.index));
    },
    .backward = [](const PickContext& c) -> Tensors {
      return {scatter_add(zero_like_picked_from(c), c.attributes().dim, c.input(1), c.grad()),
              Tensor()};
    },
    .saves = saves_input(1),
    .list = 1};

constexpr std::size_t kIndexAndSource[] = {1, 2};

constexpr Op<IndexedDim> kScatterAdd{
    .name = "scatter_add",
    .meta = [](Metas in, const IndexedDim& a) -> Meta {
      require_dims("scatter_add", in);
      return same_as_target(in, a);
    },
    .rules =
        [](Rules& r, Metas in, const IndexedDim& a) {
          const Rules::Indices target = shared_dims(in, a.dim, kIndexAndSource);
          Rules::Indices beside = target;
          if (!beside.empty()) beside[static_cast<std::size_t>(a.dim)] = sharding::kBroadcast;
          r.indices({target, beside, beside}, target).cut_all();
          if (!target.empty()) r.also({Partial(), Shard(a.dim), Shard(a.dim)}, Partial());
        },
    .local = [](Locals in, const IndexedDim& a, const None&, const Site& site) -> LocalTensor {
      const Stretch part = stretch_of("scatter_add", in[1], in[0], a.dim, site);
      if (part.empty) return in[0].clone();
      return tensors::scatter_add(in[0], a.dim, part.index, part.or_none(in[2]));
    },
    .backward = [](const IndexContext& c) -> Tensors {
      if (!c.needs(2)) return {c.grad(), Tensor(), Tensor()};
      return {c.grad(), Tensor(), gather(c.grad(), c.attributes().dim, c.input(1))};
    },
    .saves = saves_input(1),
    .list = 1};

constexpr Op<IndexedDim> kScatter{
    .name = "scatter",
    .meta = [](Metas in, const IndexedDim& a) -> Meta {
      require_dims("scatter", in);
      return same_as_target(in, a);
    },
    .rules =
        [](Rules& r, Metas in, const IndexedDim& a) {
          Rules::Indices shared = shared_dims(in, a.dim, kIndexAndSource);
          if (!shared.empty()) shared[static_cast<std::size_t>(a.dim)] = sharding::kBroadcast;
          r.indices({shared, shared, shared}, shared).cut_all();
        },
    .local = [](Locals in, const IndexedDim& a, const None&,
                const Site&) { return tensors::scatter(in[0], a.dim, in[1], in[2]); },
    .backward = [](const IndexContext& c) -> Tensors {
      const int dim = c.attributes().dim;
      const Tensor g = c.grad(), positions = c.input(1);
      return {c.needs(0) ? scatter(g, dim, positions, 0) : Tensor(), Tensor(),
              c.needs(2) ? gather(g, dim, positions) : Tensor()};
    },
    .saves = saves_input(1),
    .list = 1};

constexpr Op<IndexedDim, Number> kScatterNumber{
    .name = "scatter",
    .meta = [](Metas in, const IndexedDim&) -> Meta {
      require_dims("scatter", in);
      return in[0];
    },
    .rules =
        [](Rules& r, Metas in, const IndexedDim& a) {
          constexpr std::size_t kIndex[] = {1};
          Rules::Indices shared = shared_dims(in, a.dim, kIndex);
          if (!shared.empty()) shared[static_cast<std::size_t>(a.dim)] = sharding::kBroadcast;
          r.indices({shared, shared}, shared).cut_all();
        },
    .local = [](Locals in, const IndexedDim& a, const Number& v,
                const Site&) { return tensors::scatter(in[0], a.dim, in[1], v.value); },
    .backward = [](const Context<IndexedDim, Number>& c) -> Tensors {
      return {scatter(c.grad(), c.attributes().dim, c.input(1), 0), Tensor()};
    },
    .saves = saves_input(1),
    .list = 1};

// --- Elements that are folded.

struct PlacedFold {
  int dim;
  ScatterReduce by;  ///< prod, amax or amin
};
void append_key(CallKey& key, const PlacedFold& a) {
  key.push_back(a.dim);
  key.push_back(static_cast<std::int64_t>(a.by));
}
using FoldContext = Context<PlacedFold, None>;

ReduceOp reduce_op_of(ScatterReduce by) {
  if (by == ScatterReduce::prod) return ReduceOp::product;
  return by == ScatterReduce::amax ? ReduceOp::max : ReduceOp::min;
}

/// Where ranks have different sources, each folds its own into all of the target: an extreme may
/// meet it several times.
void fold_rules(Rules& r, Metas in, const PlacedFold& a) {
  const Rules::Indices target = shared_dims(in, a.dim, kIndexAndSource);
  Rules::Indices beside = target;
  if (!beside.empty()) beside[static_cast<std::size_t>(a.dim)] = sharding::kBroadcast;
  r.indices({target, beside, beside}, target).cut_all();
  if (a.by == ScatterReduce::prod) {
    r.linear(0);
  } else if (!target.empty()) {
    const Placement parts = Partial(reduce_op_of(a.by));
    for (const Placement& whole : {Replicate(), parts})
      r.also({whole, Shard(a.dim), Shard(a.dim)}, parts);
  }
}

/// Where a source is 0, what else came to its place is its derivative, unless another was 0, too.
Tensor gradient_of_factors(const FoldContext& c, const Tensor& source) {
  const int dim = c.attributes().dim;
  const Tensor index = c.input(1), is_zero = eq(source, 0);
  // What a rehearsal has moved is zeros, whatever the sources are.
  if (Graph::is_on() && !tensors::ShapesOnly::stands() && any(is_zero).item() != 0 &&
      !MoveObserver::rehearsing()) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "a second gradient of scatter_reduce to products",
                      "a source is 0, where the first one is found by leaving it out",
                      "backward() without a graph of gradients, or sources other than 0");
  }
  const Tensor factors = where(is_zero, one_of(source), source);
  const Tensor product = scatter_reduce(c.input(0), dim, index, factors, ScatterReduce::prod);
  const Tensor zeros =
      scatter_add(zeros_like(product).to(DType::i64), dim, index, is_zero.to(DType::i64));
  const Tensor of_all = gather(c.grad() * product, dim, index);
  const Tensor zeros_beside = gather(zeros, dim, index);
  return where(is_zero, where(eq(zeros_beside, 1), of_all, 0),
               where(eq(zeros_beside, 0), of_all / factors, 0));
}

Tensors product_gradient(const FoldContext& c) {
  const Tensor source = without_partial(c.input(2));
  const auto of_target = [&] {
    return c.grad() * scatter_reduce(ones_like(c.input(0)), c.attributes().dim, c.input(1), source,
                                     ScatterReduce::prod);
  };
  return {c.needs(0) ? of_target() : Tensor(), Tensor(),
          c.needs(2) ? gradient_of_factors(c, source) : Tensor()};
}

Tensor is_extreme(const Tensor& a, const Tensor& extreme) {
  return logical_or(eq(a, extreme), logical_and(isnan(a), isnan(extreme)));
}

/// All that are the extreme share its gradient.
Tensors extreme_gradient(const FoldContext& c) {
  const int dim = c.attributes().dim;
  const Tensor index = c.input(1), y = without_partial(c.output());
  const Tensor target_has = is_extreme(without_partial(c.input(0)), y);
  const Tensor source_has = is_extreme(without_partial(c.input(2)), gather(y, dim, index));
  const DType dtype = c.dtype(0);
  const Tensor share =
      c.grad() / scatter_add(target_has.to(dtype), dim, index, source_has.to(dtype));
  return {where(target_has, share, 0), Tensor(), where(source_has, gather(share, dim, index), 0)};
}

constexpr Op<PlacedFold> kScatterFold{
    .name = "scatter_reduce",
    .meta = [](Metas in, const PlacedFold& a) -> Meta {
      require_dims("scatter_reduce", in);
      return same_as_target(in, {a.dim});
    },
    .rules = fold_rules,
    .local = [](Locals in, const PlacedFold& a, const None&, const Site& site) -> LocalTensor {
      const Stretch part = stretch_of("scatter_reduce", in[1], in[0], a.dim, site);
      if (part.empty) return in[0].clone();
      const LocalTensor none = neutral_like(in[2], {}, reduce_op_of(a.by));
      return tensors::scatter_reduce(in[0], a.dim, part.index, part.or_else(in[2], none), a.by);
    },
    .backward =
        [](const FoldContext& c) {
          return c.attributes().by == ScatterReduce::prod ? product_gradient(c)
                                                          : extreme_gradient(c);
        },
    .saves = {7, true},
    .list = 1};

/// Positions of i32 are taken, too.
Tensor wide_positions(const Tensor& index) {
  return index.dtype() == DType::i32 ? index.to(DType::i64) : index;
}

/// No positions at all: of whatever shape, they are beside any tensor.
bool is_nothing(const Tensor& a, const Tensor& index) {
  return index.numel() == 0 && index.dim() != a.dim();
}

/// The part of a source beside the index: it may be larger than that.
Tensor beside_index(const Tensor& source, const Tensor& index) {
  Tensor part = source;
  if (source.dim() != index.dim()) return part;
  for (int d = 0; d < source.dim(); ++d) {
    if (source.size(d) > index.size(d)) part = part.narrow(d, 0, index.size(d));
  }
  return part;
}

template <typename A, typename V>
Tensor call_three(const Op<A, V>& op, const Tensor& a, const Tensor& b, const Tensor& c,
                  const A& attributes, const V& numbers = {}) {
  const Tensor* const inputs[] = {&a, &b, &c};
  return call(op, std::span<const Tensor* const>(inputs), attributes, numbers);
}

}  // namespace

Tensor index_select(const Tensor& a, int dim, const Tensor& index) {
  return named_call("index_select", {{"input", a}, {"index", index}}, [&] {
    if (a.dim() == 0 && index.numel() != 1) {
      throw base::Error(
          base::ErrorCode::kInvalidArgument,
          "index_select of a single number at " + std::to_string(index.numel()) + " positions",
          "it has one", "view({1}) first");
    }
    return call(kIndexSelect, a, wide_positions(index),
                IndexedDim{named_dim_or_only("index_select", a, dim)}, Origin{a.spec()});
  });
}
Tensor index_add(const Tensor& a, int dim, const Tensor& index, const Tensor& source,
                 Scalar alpha) {
  return named_call("index_add", {{"input", a}, {"index", index}, {"source", source}}, [&] {
    return call_three(kIndexAdd, a, wide_positions(index), source,
                      IndexedDim{named_dim_or_only("index_add", a, dim)}, Number{alpha});
  });
}
Tensor gather(const Tensor& a, int dim, const Tensor& index) {
  return named_call("gather", {{"input", a}, {"index", index}}, [&] {
    if (is_nothing(a, index)) return a.reshape({-1}).slice(0, 0, 0).reshape(index.shape());
    return call(kGather, a, wide_positions(index), IndexedDim{named_dim_or_only("gather", a, dim)},
                Origin{a.spec()});
  });
}
Tensor scatter(const Tensor& a, int dim, const Tensor& index, const Tensor& source) {
  return named_call("scatter", {{"input", a}, {"index", index}, {"source", source}}, [&] {
    if (is_nothing(a, index)) return a.clone();
    return call_three(kScatter, a, wide_positions(index), beside_index(source, index),
                      IndexedDim{named_dim_or_only("scatter", a, dim)});
  });
}
Tensor scatter(const Tensor& a, int dim, const Tensor& index, Scalar value) {
  return named_call("scatter", {{"input", a}, {"index", index}}, [&] {
    if (is_nothing(a, index)) return a.clone();
    return call(kScatterNumber, a, wide_positions(index),
                IndexedDim{named_dim_or_only("scatter", a, dim)}, Number{value});
  });
}
Tensor scatter_add(const Tensor& a, int dim, const Tensor& index, const Tensor& source) {
  return named_call("scatter_add", {{"input", a}, {"index", index}, {"source", source}}, [&] {
    if (is_nothing(a, index)) return a.clone();
    return call_three(kScatterAdd, a, wide_positions(index), beside_index(source, index),
                      IndexedDim{named_dim_or_only("scatter_add", a, dim)});
  });
}

namespace {

/// What a fold of nothing is.
Scalar start_of(ScatterReduce by, DType dtype) {
  if (by == ScatterReduce::sum || by == ScatterReduce::mean) return 0;
  const LocalTensor start = neutral_like(tensors::empty({}, {dtype}), {}, reduce_op_of(by));
  return tensors::is_floating_point(dtype) ? Scalar(start.to_vector()[0])
                                           : Scalar(start.to_vector_i64()[0]);
}

Tensor reduced_into(const Tensor& a, int dim, const Tensor& index, const Tensor& source,
                    ScatterReduce by, IncludeSelf include_self);

/// The sum divided by how many came. Halves in f32, integers rounded down.
Tensor mean_into(const Tensor& a, int dim, const Tensor& index, const Tensor& source,
                 IncludeSelf include_self) {
  const DType dtype = a.dtype();
  if (dtype == DType::boolean) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "scatter_reduce of bool tensors to their mean",
                      "a mean of truth values is none", "to(DType::f32) first");
  }
  if (dtype == source.dtype() && (dtype == DType::f16 || dtype == DType::bf16))
    return mean_into(a.to(DType::f32), dim, index, source.to(DType::f32), include_self).to(dtype);
  const Tensor total = reduced_into(a, dim, index, source, ScatterReduce::sum, include_self);
  const Tensor each = ones_like(a).to(DType::i64);
  const Tensor counts = reduced_into(each, dim, index, ones_like(index).to(DType::i64),
                                     ScatterReduce::sum, include_self);
  if (tensors::is_floating_point(dtype)) return div(total, counts.to(dtype));
  return floor_divide(total.to(DType::i64), counts).to(dtype);
}

Tensor reduced_into(const Tensor& a, int dim, const Tensor& index, const Tensor& source,
                    ScatterReduce by, IncludeSelf include_self) {
  if (is_nothing(a, index)) return a.clone();
  if (by == ScatterReduce::mean) return mean_into(a, dim, index, source, include_self);
  const Tensor start =
      include_self == IncludeSelf::yes ? a : scatter(a, dim, index, start_of(by, a.dtype()));
  if (by == ScatterReduce::sum) return scatter_add(start, dim, index, source);
  return call_three(kScatterFold, start, wide_positions(index), beside_index(source, index),
                    PlacedFold{named_dim_or_only("scatter_reduce", a, dim), by});
}

}  // namespace

Tensor scatter_reduce(const Tensor& a, int dim, const Tensor& index, const Tensor& source,
                      ScatterReduce reduce, IncludeSelf include_self) {
  return named_call("scatter_reduce", {{"input", a}, {"index", index}, {"source", source}},
                    [&] { return reduced_into(a, dim, index, source, reduce, include_self); });
}
Tensor scatter(const Tensor& a, int dim, const Tensor& index, const Tensor& source,
               ScatterReduce reduce) {
  return named_call("scatter", {{"input", a}, {"index", index}, {"source", source}},
                    [&] { return reduced_into(a, dim, index, source, reduce, IncludeSelf::yes); });
}
Tensor scatter(const Tensor& a, int dim, const Tensor& index, Scalar value, ScatterReduce reduce) {
  return named_call("scatter", {{"input", a}, {"index", index}}, [&] {
    const Tensor source = full_like(index.to(a.dtype()), value);
    return reduced_into(a, dim, index, source, reduce, IncludeSelf::yes);
  });
}

Tensor embedding(const Tensor& positions, const Tensor& table,
                 std::optional<std::int64_t> padding_idx) {
  return named_call("embedding", {{"positions", positions}, {"table", table}}, [&] {
    if (table.dim() != 2) {
      throw base::Error(base::ErrorCode::kInvalidArgument,
                        "embedding in a table of shape " + tensors::shape_to_string(table.shape()),
                        "a table has rows: two dims",
                        "embedding(positions, table), or index() of any tensor");
    }
    if (padding_idx && (*padding_idx < -table.size(0) || *padding_idx >= table.size(0))) {
      throw base::Error(base::ErrorCode::kInvalidArgument,
                        "embedding with padding_idx " + std::to_string(*padding_idx),
                        "the table has " + std::to_string(table.size(0)) + " rows",
                        "the number of a row");
    }
    Tensor rows = rows_at(table, wide_positions(positions));
    if (padding_idx) {
      const std::int64_t padding = *padding_idx < 0 ? *padding_idx + table.size(0) : *padding_idx;
      rows = where(eq(positions, padding).unsqueeze(-1), rows.detach(), rows);
    }
    return rows;
  });
}

Tensor rows_at(const Tensor& table, const Tensor& positions) {
  return call(kRowsAt, table, positions, None{}, Origin{table.spec()});
}

}  // namespace dtrun::dtensor
