"""PyTorch's FileStore on a file that dtrun's has open as well: store_file.py PATH."""
import datetime
import sys

import torch.distributed as dist

store = dist.FileStore(sys.argv[1], 2)
store.set_timeout(datetime.timedelta(seconds=60))
store.set("from torch", bytes(range(256)))
assert store.get("from dtrun") == b"2"
assert store.add("n", 5) == 12
assert store.compare_set("c", "ours", "theirs") == b"theirs"
assert store.check(["gone"])
store.delete_key("gone")
assert not store.check(["gone"])
store.set("done", "")
store.wait(["bye"])
print("met")
