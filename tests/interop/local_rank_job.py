"""A PyTorch program of before torchrun: it wants its local rank as an argument."""
import argparse
import os

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local-rank", "--local_rank", type=int, default=-1)
parser.add_argument("--lr", type=float)
args = parser.parse_args()
total = torch.tensor([args.local_rank, int(os.environ["LOCAL_RANK"])]).tolist()
print(f"rank {os.environ['RANK']}: {total} lr {args.lr}")
