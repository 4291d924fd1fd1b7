"""PyTorch's own store: store_server.py BACKEND PORT_FILE; serves until it is killed."""
import datetime
import signal
import sys

import torch.distributed as dist

store = dist.TCPStore("127.0.0.1", 0, None, True, datetime.timedelta(seconds=30),
                      wait_for_workers=False, use_libuv=sys.argv[1] == "libuv")
with open(sys.argv[2], "w") as file:
    file.write(str(store.port))
print("serving", flush=True)
signal.pause()
