#include "nccl/composition.h"

#include <algorithm>
#include <utility>

#include "dtrun/base/check.h"
#include "nccl/nccl_types.h"
#include "premul_factor.h"

namespace dtrun::collectives::nccl {

namespace {

Source source_of(const Buffer& buffer) {
  return {buffer.data, static_cast<std::size_t>(buffer.count), data_type(buffer.dtype)};
}

/// Remembers the first call of a group that failed. The group is ended all the same: NCCL counts
/// the starts of each thread, and would hold back all later calls. in_progress is no failure,
/// because communicators do not block (real_nccl_api.cc).
class CallGroup {
 public:
  explicit CallGroup(NcclApi& api) : api_(api), result_(api.group_start()) {}
  void add(Result result) {
    if (result_ == Result::success || result_ == Result::in_progress) result_ = result;
  }
  Result end() {
    const Result ended = api_.group_end();
    add(ended);
    return result_;
  }

 private:
  NcclApi& api_;
  Result result_;
};

bool counts_are_equal(const std::vector<Buffer>& buffers) {
  return std::all_of(buffers.begin(), buffers.end(),
                     [&](const Buffer& buffer) { return buffer.count == buffers.front().count; });
}

bool lie_one_after_the_other(const std::vector<Buffer>& buffers) {
  const char* expected = static_cast<const char*>(buffers.front().data);
  for (const Buffer& buffer : buffers) {
    if (buffer.data != expected) return false;
    expected += buffer.bytes();
  }
  return true;
}

}  // namespace

Launch Composer::launch(std::function<Result(Communicator, DeviceStream)> issue) const {
  Launch result;
  result.queue.device = device_index;
  result.issue = std::move(issue);
  return result;
}

Launch Composer::reduction_launch(
    const Combine& combine,
    std::function<Result(Reduction, Communicator, DeviceStream)> issue) const {
  if (!combine.factor)
    return launch([op = combine.op, issue = std::move(issue)](Communicator communicator,
                                                              DeviceStream stream) {
      return issue(op, communicator, stream);
    });
  struct Made {
    Reduction op;
    Communicator communicator = nullptr;
  };
  const auto made = std::make_shared<Made>();
  Launch result =
      launch([api = nccl, made, dtype = combine.dtype,
              element = factor_element(*combine.factor, combine.dtype),
              issue = std::move(issue)](Communicator communicator, DeviceStream stream) {
        const Result status =
            api->make_premul_sum(&made->op, element.bytes, data_type(dtype), communicator);
        if (status != Result::success) return status;
        made->communicator = communicator;
        return issue(made->op, communicator, stream);
      });
  // NCCL may still be at the call when it has returned; it is through when this is asked for.
  result.after = [api = nccl, made](DeviceStream) {
    check(*api, api->destroy_reduction(made->op, made->communicator), "give a reduction back",
          made->communicator);
  };
  return result;
}

Launch Composer::collective(const CollectiveView& call, double factor) const {
  const auto combine = [&] {
    Combine made{reduction(call.op(), call.fingerprint.dtype), std::nullopt,
                 call.fingerprint.dtype};
    if (call.op() == ReduceOp::premul_sum) made.factor = factor;
    return made;
  };
  const Buffers inputs(call.inputs.begin(), call.inputs.end());
  const Buffers outputs(call.outputs.begin(), call.outputs.end());
  switch (call.kind()) {
    case OpKind::broadcast:
      return broadcast(call);
    case OpKind::all_reduce:
      return all_reduce(inputs.front(), outputs.front(), combine());
    case OpKind::reduce:
      return reduce(call, combine());
    case OpKind::all_gather:
      return all_gather(inputs.front(), outputs);
    case OpKind::gather:
      return exchange(outputs, only(call.root(), inputs.front()));
    case OpKind::scatter:
      return exchange(only(call.root(), outputs.front()), inputs);
    case OpKind::reduce_scatter:
      return reduce_scatter(outputs.front(), inputs, combine());
    case OpKind::all_to_all:
      return exchange(outputs, inputs);
    case OpKind::barrier:
      return barrier();
    default:
      break;
  }
  DT_CHECK(false);
  return {};
}

Launch Composer::broadcast(const CollectiveView& call) const {
  const Buffer buffer = call.root() == rank ? call.inputs.front() : call.outputs.front();
  return launch(
      [api = nccl, buffer, root = call.root()](Communicator communicator, DeviceStream stream) {
        // No rank calls NCCL for nothing: all ranks know the count.
        if (buffer.count == 0) return Result::success;
        return api->broadcast(source_of(buffer), buffer.data, root, communicator, stream);
      });
}

Launch Composer::all_reduce(Buffer input, Buffer output, const Combine& combine) const {
  return reduction_launch(
      combine,
      [api = nccl, input, output](Reduction op, Communicator communicator, DeviceStream stream) {
        if (input.count == 0) return Result::success;
        return api->all_reduce(source_of(input), output.data, op, communicator, stream);
      });
}

Launch Composer::reduce(const CollectiveView& call, const Combine& combine) const {
  const Buffer input = call.inputs.front();
  void* const target = call.root() == rank ? call.outputs.front().data : nullptr;
  return reduction_launch(
      combine, [api = nccl, input, target, root = call.root()](
                   Reduction op, Communicator communicator, DeviceStream stream) {
        if (input.count == 0) return Result::success;
        return api->reduce(source_of(input), target, op, root, communicator, stream);
      });
}

Launch Composer::all_gather(Buffer input, std::vector<Buffer> outputs) const {
  if (!counts_are_equal(outputs)) {
    return launch([api = nccl, me = rank, input, outputs = std::move(outputs)](
                      Communicator communicator, DeviceStream stream) {
      CallGroup group(*api);
      for (std::size_t root = 0; root < outputs.size(); ++root) {
        if (outputs[root].count == 0) continue;
        // NCCL reads the source at the root only. The others give their target, as in place.
        const Buffer& from = static_cast<int>(root) == me ? input : outputs[root];
        group.add(api->broadcast(source_of(from), outputs[root].data, static_cast<int>(root),
                                 communicator, stream));
      }
      return group.end();
    });
  }
  // Allocated in the caller's thread: a lack of memory is an error of this call, whoever gives the
  // launch to NCCL later.
  std::shared_ptr<void> scratch;
  if (!lie_one_after_the_other(outputs))
    scratch = device->allocate(input.bytes() * outputs.size(), device_index);
  void* const target = scratch ? scratch.get() : outputs.front().data;
  Launch result =
      launch([api = nccl, input, target, scratch](Communicator communicator, DeviceStream stream) {
        if (input.count == 0) return Result::success;
        return api->all_gather(source_of(input), target, communicator, stream);
      });
  // On the call's stream, so the device copies when it is through with the call.
  if (scratch)
    result.after = [cuda = device, outputs = std::move(outputs), scratch](DeviceStream stream) {
      const char* part = static_cast<const char*>(scratch.get());
      for (const Buffer& output : outputs) {
        cuda->copy(output.data, part, output.bytes(), stream);
        part += output.bytes();
      }
    };
  return result;
}

Launch Composer::reduce_scatter(Buffer output, std::vector<Buffer> inputs,
                                const Combine& combine) const {
  if (!counts_are_equal(inputs)) {
    return reduction_launch(
        combine, [api = nccl, me = rank, output, inputs = std::move(inputs)](
                     Reduction op, Communicator communicator, DeviceStream stream) {
          CallGroup group(*api);
          for (std::size_t root = 0; root < inputs.size(); ++root) {
            if (inputs[root].count == 0) continue;
            void* const target = static_cast<int>(root) == me ? output.data : nullptr;
            group.add(api->reduce(source_of(inputs[root]), target, op, static_cast<int>(root),
                                  communicator, stream));
          }
          return group.end();
        });
  }
  std::shared_ptr<void> scratch;
  if (!lie_one_after_the_other(inputs))
    scratch = device->allocate(output.bytes() * inputs.size(), device_index);
  return reduction_launch(
      combine, [api = nccl, cuda = device, output, inputs = std::move(inputs), scratch](
                   Reduction op, Communicator communicator, DeviceStream stream) {
        if (output.count == 0) return Result::success;
        Source source = source_of(output);
        source.data = scratch ? scratch.get() : inputs.front().data;
        char* part = static_cast<char*>(scratch.get());
        for (std::size_t i = 0; scratch && i < inputs.size(); ++i, part += output.bytes())
          cuda->copy(part, inputs[i].data, inputs[i].bytes(), stream);
        return api->reduce_scatter(source, output.data, op, communicator, stream);
      });
}

Launch Composer::exchange(std::vector<Buffer> outputs, std::vector<Buffer> inputs) const {
  return launch([api = nccl, cuda = device, me = static_cast<std::size_t>(rank),
                 outputs = std::move(outputs),
                 inputs = std::move(inputs)](Communicator communicator, DeviceStream stream) {
    // This rank's own part needs no call of NCCL.
    if (me < outputs.size() && me < inputs.size())
      cuda->copy(outputs[me].data, inputs[me].data, outputs[me].bytes(), stream);
    CallGroup group(*api);
    for (std::size_t peer = 0; peer < std::max(outputs.size(), inputs.size()); ++peer) {
      if (peer == me) continue;
      if (peer < inputs.size() && inputs[peer].count > 0)
        group.add(api->send(source_of(inputs[peer]), static_cast<int>(peer), communicator, stream));
      if (peer < outputs.size() && outputs[peer].count > 0)
        group.add(api->receive(outputs[peer].data, static_cast<std::size_t>(outputs[peer].count),
                               data_type(outputs[peer].dtype), static_cast<int>(peer), communicator,
                               stream));
    }
    return group.end();
  });
}

Composer::Buffers Composer::only(int other, const Buffer& buffer) const {
  // exchange() looks at this rank's own part, too, so the list reaches to both.
  Buffers list(static_cast<std::size_t>(std::max(rank, other)) + 1);
  list[static_cast<std::size_t>(other)] = buffer;
  return list;
}

Launch Composer::barrier() const {
  const std::shared_ptr<void> byte = device->allocate(1, device_index);
  Launch result = launch([api = nccl, byte](Communicator communicator, DeviceStream stream) {
    return api->all_reduce({byte.get(), 1, DataType::u8}, byte.get(), Reduction::max, communicator,
                           stream);
  });
  result.host_wait = HostWait::yes;
  return result;
}

std::vector<Launch> Composer::batch(const std::vector<Message>& messages) const {
  struct Part {
    OpKind kind;
    Buffer buffer;
    int peer;
  };
  std::vector<Part> parts;
  std::vector<Launch> launches;
  for (const Message& message : messages) {
    if (message.buffer.count > 0) parts.push_back({message.kind, message.buffer, message.peer});
    // Each message has a launch of its own, as it has an operation. Only the first one calls NCCL:
    // one group for all, so that the messages do not wait for one another. The queue gives the
    // launches in their order, so none of them ends before that group has been given to NCCL.
    launches.push_back(launch([](Communicator, DeviceStream) { return Result::success; }));
    launches.back().bytes = message.buffer.bytes();
  }
  if (parts.empty()) return launches;
  launches.front().issue = [api = nccl, parts = std::move(parts)](Communicator communicator,
                                                                  DeviceStream stream) {
    CallGroup group(*api);
    for (const Part& part : parts)
      group.add(part.kind == OpKind::send
                    ? api->send(source_of(part.buffer), part.peer, communicator, stream)
                    : api->receive(part.buffer.data, static_cast<std::size_t>(part.buffer.count),
                                   data_type(part.buffer.dtype), part.peer, communicator, stream));
    return group.end();
  };
  return launches;
}

Launch Composer::send(Buffer buffer, QueueKey queue) const {
  Launch result = launch([api = nccl, buffer](Communicator communicator, DeviceStream stream) {
    if (buffer.count == 0) return Result::success;
    return api->send(source_of(buffer), 1, communicator, stream);
  });
  result.queue = queue;
  return result;
}

Launch Composer::receive(Buffer buffer, QueueKey queue) const {
  Launch result = launch([api = nccl, buffer](Communicator communicator, DeviceStream stream) {
    if (buffer.count == 0) return Result::success;
    return api->receive(buffer.data, static_cast<std::size_t>(buffer.count),
                        data_type(buffer.dtype), 0, communicator, stream);
  });
  result.queue = queue;
  return result;
}

}  // namespace dtrun::collectives::nccl
