"""PyTorch's TCPStore server for store_bench: prints its port, ends with its standard input."""
import sys

from torch.distributed import TCPStore

store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
